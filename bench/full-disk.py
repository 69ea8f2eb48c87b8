#!/usr/bin/env python3
"""A gateway whose disk is full, killed and ended in order: it serves what it knew, and learns the rest when there is room.

    bench/run full-disk

Its folder is a small file system in memory, which takes root. Prints the results; fails when a promise is broken. Needs
redis-server and curl (Debian), which it installs as root, and the release build, which bench/run makes. TOLLHOUSE=PROGRAM
(with gateway beside it) tests another build.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import time

import shared
from shared import ROOT, free_port, promise

DOMAIN = "tollhouse.localhost"


class Edge:
    """A gateway with its data on the small disk."""

    def __init__(self, program, work, disk):
        upstream, redis, self.port = free_port(), free_port(), free_port()
        for command in (["python3", "-m", "http.server", str(upstream), "--bind", "127.0.0.1"],
                        ["redis-server", "--port", str(redis), "--save", ""]):
            shared.start(*command, cwd=work, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.plane = shared.Platform(program, work, bench=upstream)
        config = shared.config(work, "gateway.toml", PORT=self.port, ADMIN=free_port(), REDIS=redis,
                               CONTROL=self.plane.control, DATA=self.plane.data, UPSTREAM=upstream,
                               edits=[(f'"{work}/gateway"', f'"{disk}/gateway"')])
        self.command = [os.path.join(os.path.dirname(program), "gateway"), "--config", config]
        self.log = open(os.path.join(work, "gateway.log"), "ab")
        self.start()

    def start(self):
        self.process = shared.start(*self.command, stdout=self.log, stderr=self.log)

    def status(self, project):
        host = f"{project}.{DOMAIN}"
        return subprocess.run(["curl", "--silent", "--cacert", os.path.join(self.plane.data, "ca/ca.pem"), "--output", "/dev/null",
                               "--write-out", "%{http_code}", "--max-time", "5", "--resolve", f"{host}:{self.port}:127.0.0.1",
                               f"https://{host}:{self.port}/"], capture_output=True, text=True).stdout

    def serves(self, project):
        return self.in_time(lambda: self.status(project) == "200")

    def says(self, words):
        def there():
            with open(self.log.name) as lines:
                return words in lines.read()
        return self.in_time(there)

    def in_time(self, holds):
        deadline = time.time() + 30
        while not holds():
            if time.time() > deadline or self.process.poll() is not None:
                return False
            time.sleep(0.1)
        return True


def fill(path):
    with contextlib.suppress(OSError), open(path, "wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


def main():
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    shared.install({"redis-server": "redis-server", "curl": "curl"})
    program = os.environ.get("TOLLHOUSE", os.path.join(ROOT, "target/release/tollhouse"))
    with shared.workplace() as work:
        disk = os.path.join(work, "disk")
        os.mkdir(disk)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", disk], check=True)
        try:
            edge = Edge(program, work, disk)
            edge.plane.public_site()
            promise(edge.serves("site"), "it serves a project")
            fill(os.path.join(disk, "filling"))
            promise(edge.serves("site"), "it serves with a full disk")
            edge.process.kill()
            edge.process.wait()
            edge.start()
            promise(edge.serves("site"), "killed and started again with a full disk it serves")
            edge.process.terminate()
            promise(edge.process.wait(60) == 0, "after SIGTERM it ends with status 0")
            edge.start()
            promise(edge.serves("site"), "ended and started again with a full disk it serves")
            edge.plane.tool("project", "create", "late", "--plan", "free", "--access", "public", "--upstream", "bench")
            promise(edge.says("16 MiB are needed"), "its log says what it lacks")
            os.unlink(os.path.join(disk, "filling"))
            promise(edge.serves("late"), "with room again it learns what it missed")
        finally:
            # A file system in use cannot be taken away.
            shared.end_all()
            subprocess.run(["umount", disk], check=True)
    sys.exit(1 if shared.broken else 0)


if __name__ == "__main__":
    main()
