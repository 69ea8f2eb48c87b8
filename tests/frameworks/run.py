#!/usr/bin/env python3
"""Runs applications of common frameworks behind `tollhouse up` at a port other than 443, as the README starts them:
a form with protection against forgery, a session, an upload, a redirect, an absolute URL, a WebSocket.

Usage: VENV/bin/python tests/frameworks/run.py NODE_MODULES. VENV has the packages of requirements.txt, NODE_MODULES those of
package-lock.json. The program is $TOLLHOUSE, by default target/debug/tollhouse.
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
            ports = {name: start(name, node_modules, processes) for name in FRAMEWORKS}
            upstreams = [word for name, port in ports.items() for word in ("--upstream", f"{name}=http://127.0.0.1:{port}")]
            ports_of_its_own = ["--http-port", "0", "--https-port", "0", "--admin-port", "0"]
            up = [program, "up", "--json", "--no-demo", "--data-dir", directory, *ports_of_its_own, *upstreams]
            platform = subprocess.Popen(up, stdout=subprocess.PIPE, text=True)
            processes.append(platform)
            port = json.loads(platform.stdout.readline())["https"].rsplit(":", 1)[1]
            for name in FRAMEWORKS:
                words = ["project", "create", name, "--plan", "pro", "--upstream", name, "--access", "public"]
                create = [program, *words, "--data-dir", directory]
                subprocess.run(create, check=True, stdout=subprocess.DEVNULL)
            for name in FRAMEWORKS:
                failed += visit(name, f"{name}.tollhouse.localhost:{port}", f"{directory}/ca/ca.pem")
        finally:
            for process in reversed(processes):
                process.send_signal(signal.SIGINT)
            for process in processes:
                try:
                    process.wait(PATIENCE)
                except subprocess.TimeoutExpired:
                    process.kill()
    for line in failed:
        print(line, file=sys.stderr)
    print(f"{len(FRAMEWORKS)} frameworks, {len(failed)} failures")
    return min(len(failed), 1)


def start(name: str, node_modules: str, processes: list) -> int:
    port = free_port()
    if name == "express":
        words = ["node", str(APPLICATIONS / "with_express.js"), str(port)]
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


sys.exit(main(sys.argv[1]))
