#!/usr/bin/env python3
"""Checks the running platform against its interface descriptions, through the gateway, over TLS: lints the committed
documents, calls every operation (operations.py), then sends the valid and invalid requests of schemathesis.

Usage: VENV/bin/python tests/contract/run.py [seconds per document]. VENV has the packages of requirements.txt.
The program is $TOLLHOUSE, by default target/debug/tollhouse.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import operations

ROOT = Path(__file__).resolve().parent.parent.parent
DOCUMENTS = ROOT / "docs" / "reference" / "openapi"
PROJECT = "demo-business"
SEED = "20260615"
START_SECONDS_MAX = 60

# For the control plane: the run must not revoke or rotate its own key. A schema cannot describe hostnames, redirects or
# future times, and the gateway routes all its paths as one tree, so only the responses are checked: no server error, and
# no status, header or body that the description lacks.
ANSWERS = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,"
ANSWERS += "response_schema_conformance"
CONTROL_PLANE = ["--checks", ANSWERS, "--exclude-operation-id", "revokeKey", "--exclude-operation-id", "rotateKey"]
EVERYTHING = ["--checks", "all"]


def main(tools: Path, seconds: str) -> int:
    program = os.environ.get("TOLLHOUSE", str(ROOT / "target" / "debug" / "tollhouse"))
    failed = []
    for document in sorted(DOCUMENTS.glob("*.json")):
        if subprocess.run([tools / "openapi-spec-validator", document], check=False).returncode:
            failed.append(f"{document.name} is not a valid description")
    with tempfile.TemporaryDirectory() as directory:
        platform = subprocess.Popen(
            [program, "up", "--json", "--http-port", "0", "--https-port", "0", "--admin-port", "0", "--data-dir", directory],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            if not platform.stdout.readline().startswith("{"):
                return complain(["the platform did not start"])
            failed += explore(tools, seconds, program, Path(directory))
        finally:
            platform.send_signal(signal.SIGINT)
            try:
                platform.wait(START_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                platform.kill()
    return complain(failed)


def explore(tools: Path, seconds: str, program: str, directory: Path) -> list[str]:
    limits = ["--plan", "enterprise", "--per-minute", "10000000", "--per-day", "1000000000"]
    subprocess.run(
        [program, "project", "set", PROJECT, *limits, "--data-dir", directory], check=True, stdout=subprocess.DEVNULL
    )
    demo = json.loads((directory / "demo.json").read_text())
    project = next(project for project in demo["projects"] if project["id"] == PROJECT)
    key = next(key["key"] for key in project["keys"] if "orders:write" in key["scopes"])
    port, api = demo["https_port"], f"api.{demo['platform_domain']}"
    settings = directory / "schemathesis.toml"
    settings.write_text(f'hooks = "{ROOT / "tests" / "contract" / "hooks.py"}"\n[parameters]\nproject = "{PROJECT}"\n')
    host, ca = f"https://{project['host']}:{port}", demo["ca_certificate"]
    failed = operations.orders(DOCUMENTS, host, ca, key, project["orders"])
    for name, base, more in [
        # Between the two documents, so that their requests without a key do not reach the gateway's limit of one minute.
        ("orders-v1.json", f"{host}/v1", EVERYTHING),
        ("domains-v1.json", f"https://{api}:{port}/v1", CONTROL_PLANE),
        ("orders-v2.json", f"{host}/v2", EVERYTHING),
    ]:
        print(f"\n{name} at {base}", flush=True)
        run = subprocess.run(
            [tools / "schemathesis", "--config-file", settings, "run", DOCUMENTS / name, "--url", base]
            + ["--header", f"Authorization: Bearer {key}", "--tls-verify", ca]
            + ["--seed", SEED, "--max-time", seconds, "--output-sanitize", "true", *more],
            cwd=directory,
            check=False,
        )
        if run.returncode:
            failed.append(f"the service and {name} differ")
    return failed


def complain(failed: list[str]) -> int:
    for sentence in failed:
        print(f"FAILED: {sentence}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) > 2 or not sys.argv[-1].isdigit() and len(sys.argv) == 2:
        sys.exit(__doc__)
    sys.exit(main(Path(sys.executable).parent, sys.argv[1] if len(sys.argv) == 2 else "25"))
