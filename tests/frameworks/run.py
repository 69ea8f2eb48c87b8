#!/usr/bin/env python3
"""Runs applications of common frameworks behind `tollhouse up` at a port other than 443, as the README starts them:
a form with protection against forgery, a session, an upload, a redirect, an absolute URL, a WebSocket. Then a page in Chromium
calls a gRPC server over gRPC-Web, and opens a WebSocket over HTTP/2.

Usage: VENV/bin/python tests/frameworks/run.py NODE_MODULES. VENV has the packages of requirements.txt, NODE_MODULES those of
package-lock.json. The program is $TOLLHOUSE, by default target/debug/tollhouse. Chromium must be installed.
"""

import hashlib
import json
import os
import random
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import browser
import requests
from websockets.sync.client import connect

ROOT = Path(__file__).resolve().parent.parent.parent
APPLICATIONS = ROOT / "tests" / "frameworks"
FRAMEWORKS = {"django": False, "fastapi": True, "flask": False, "express": True}  # has a WebSocket
PATIENCE = 60.0  # seconds for anything to start or to end
FILE = os.urandom(5_000_000)
resolve = socket.getaddrinfo


def main(node_modules: str) -> int:
    program = os.environ.get("TOLLHOUSE", str(ROOT / "target" / "debug" / "tollhouse"))
    # Names below .localhost are this machine, also if its resolver does not know them.
    socket.getaddrinfo = lambda host, *rest, **more: resolve(
        "127.0.0.1" if str(host).endswith(".localhost") else host, *rest, **more
    )
    processes, failed = [], []
    with tempfile.TemporaryDirectory() as directory:
        try:
            ports = {name: start(name, node_modules, processes) for name in [*FRAMEWORKS, "grpc"]}
            urls = {name: f"{'h2c' if name == 'grpc' else 'http'}://127.0.0.1:{port}" for name, port in ports.items()}
            upstreams = [word for name, url in urls.items() for word in ("--upstream", f"{name}={url}")]
            upstreams += ["--upstream-setting", "grpc.grpc_web=true"]
            ports_of_its_own = ["--http-port", "0", "--https-port", "0", "--admin-port", "0"]
            up = [program, "up", "--json", "--no-demo", "--data-dir", directory, *ports_of_its_own, *upstreams]
            platform = subprocess.Popen(up, stdout=subprocess.PIPE, text=True)
            processes.append(platform)
            port = json.loads(platform.stdout.readline())["https"].rsplit(":", 1)[1]

            def tollhouse(*words: str) -> dict:
                command = [program, *words, "--data-dir", directory, "--json"]
                return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)

            for name in FRAMEWORKS:
                tollhouse("project", "create", name, "--plan", "pro", "--upstream", name, "--access", "public")
            for name in FRAMEWORKS:
                failed += visit(name, f"{name}.tollhouse.localhost:{port}", f"{directory}/ca/ca.pem")
            failed += visit_with_browser(port, tollhouse)
        finally:
            for process in reversed(processes):
                process.send_signal(signal.SIGINT)
            for process in processes:
                try:
                    process.wait(PATIENCE)
                except subprocess.TimeoutExpired:
                    process.kill()
        failed += read_log(f"{directory}/logs")
    for line in failed:
        print(line, file=sys.stderr)
    print(f"{len(FRAMEWORKS)} frameworks, gRPC-Web, {len(failed)} failures")
    return min(len(failed), 1)


def start(name: str, node_modules: str, processes: list) -> int:
    port = free_port()
    if name in ("express", "grpc"):
        words = ["node", str(APPLICATIONS / f"with_{name}.js"), str(port)]
    else:
        words = [sys.executable, str(APPLICATIONS / f"with_{name}.py"), str(port)]
    environment = {**os.environ, "NODE_PATH": node_modules}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    processes.append(subprocess.Popen(words, env=environment, **quiet))
    wait(lambda: socket.create_connection(("127.0.0.1", port), 1).close(), OSError, f"{name} does not start")
    return port


def free_port() -> int:
    """A port below the range from which the kernel assigns ports, so that no other program gets it meanwhile."""
    while True:
        port = random.randrange(20_000, 30_000)
        try:
            socket.create_server(("127.0.0.1", port)).close()
            return port
        except OSError:
            pass


def wait(attempt, error, words: str):
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return attempt()
        except error:
            if time.monotonic() > deadline:
                sys.exit(words)
            time.sleep(0.05)


def visit(name: str, place: str, ca: str) -> list[str]:
    """Returns the failures of an application; `place` is its host and port."""
    base, failed = f"https://{place}", []

    def expect(what: str, seen, wanted):
        if seen != wanted:
            failed.append(f"{name}: {what}: {seen!r} in place of {wanted!r}")

    def browser() -> requests.Session:
        session = requests.Session()
        # Ignores proxies and CA certificates of the environment.
        session.trust_env, session.verify = False, ca
        return session

    visitor = browser()
    # Browsers send the origin of a form.
    visitor.headers.update({"Origin": base, "Referer": f"{base}/sign-in/"})
    form = wait(lambda: visitor.get(f"{base}/sign-in/"), requests.ConnectionError, f"{name} is not published")
    token = re.search(r'value="([^"]+)"', form.text)[1]
    fields = {"token": token, "csrfmiddlewaretoken": token, "user": "ada"}
    signed_in = visitor.post(f"{base}/sign-in/", data=fields)
    expect("sign-in ends at", signed_in.url, f"{base}/home/")
    expect("sign-in", (signed_in.status_code, signed_in.text), (200, "ada"))
    expect("a session lasts", visitor.get(f"{base}/home/").text, "ada")
    token = visitor.cookies.get("csrftoken", domain="", path="/") or visitor.cookies.get("csrftoken") or ""
    upload = visitor.post(f"{base}/upload/", files={"file": ("a", FILE)}, headers={"X-CSRFToken": token})
    expect("an upload", (upload.status_code, upload.text), (200, hashlib.sha256(FILE).hexdigest()))
    expect("an absolute URL", visitor.get(f"{base}/absolute/").text, f"{base}/home/")
    path = "/items" if name == "express" else "/home"
    moved = visitor.get(base + path, allow_redirects=False)
    target = requests.compat.urljoin(base + path, moved.headers.get("Location", ""))
    expect("a redirect", (moved.status_code in (301, 302, 307, 308), target), (True, f"{base}{path}/"))
    forged = browser().post(f"{base}/sign-in/", data=fields, headers={"Origin": "https://evil.example"})
    expect("a forged form", forged.status_code, 403)
    if FRAMEWORKS[name]:
        with connect(f"wss://{place}/socket", ssl=ssl.create_default_context(cafile=ca)) as talk:
            talk.send("hello")
            expect("a WebSocket", talk.recv(PATIENCE), "hello")
    return failed


def visit_with_browser(port: str, tollhouse) -> list[str]:
    """Returns the failures of a page of Express that calls the gRPC server: an API with keys, at another origin."""
    site = f"https://express.tollhouse.localhost:{port}"
    tollhouse("project", "create", "grpc", "--plan", "pro", "--upstream", "grpc")
    tollhouse("project", "set", "grpc", "--cors", site)
    key = tollhouse("key", "create", "grpc")["key"]
    given = {"grpc": f"https://grpc.tollhouse.localhost:{port}", "key": key}
    report = browser.visit(f"{site}/items/page.html", given, PATIENCE)
    wanted = {
        "a call": [50_000, "é"],
        "a stream": ["eins", "zwei", "drei", "ä", [0, "4"]],
        "a failed call": [5, "100 % é is not here"],
        "a call without a key": 16,
        "a WebSocket": ["hello", 1000, "bye", True],
    }
    return [f"browser: {what}: {report[what]!r} in place of {value!r}" for what, value in wanted.items() if report[what] != value]


def read_log(folder: str) -> list[str]:
    """Returns a failure unless the browser, in contrast to the other client, has used HTTP/2."""
    lines = [json.loads(line) for file in Path(folder).iterdir() for line in file.read_text().splitlines()]
    seen = {(line["host"].split(".")[0], line["proto"]) for line in lines if line.get("path", "").startswith(("/socket", "/tests.Text/"))}
    wanted = {("fastapi", "h1"), ("express", "h1"), ("express", "h2"), ("grpc", "h2")}
    return [] if seen == wanted else [f"browser: versions of HTTP: {seen} in place of {wanted}"]


sys.exit(main(sys.argv[1]))
