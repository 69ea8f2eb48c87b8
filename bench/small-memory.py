#!/usr/bin/env python3
"""A gateway in little memory: a hundred connections that ask for all they may have. Prints what it took; fails when it dies.

    bench/run small-memory [--megabytes 64] [--connections 100] [--streams 1] [--requests 10000]

Over HTTP/1, over HTTP/2 one request after the other, and with --streams several at once on each connection, which takes
more memory (ten of them 160 MB): heads of 14 KiB, bodies of 1 MiB, responses of 1 MiB.

The process is put into a memory control group of its own (version 1 or 2, which takes root). Fails when the kernel kills
it, when it ends, when it does not serve afterwards, or when nothing was served under the load: what it has no memory for
it must refuse. Needs redis-server and nghttp2-client (Debian), which it installs as root, and
the release build, which bench/run makes. TOLLHOUSE=PROGRAM (with gateway beside it) measures another build.
"""

import argparse
import asyncio
import contextlib
import os
import re
import subprocess
import sys
import threading
import time

import shared
from shared import ROOT, free_port

HOST = "site.tollhouse.localhost"
BODY = b"x" * 1024 * 1024
# Less than a head may have, with what h2load adds.
HEADER = "x-filler: " + "x" * 7000


class Group:
    """A control group with a limit on memory."""

    def __init__(self, megabytes):
        root, name = "/sys/fs/cgroup", f"tollhouse-{os.getpid()}"
        self.old = os.path.isdir(f"{root}/memory")
        self.path = f"{root}/memory/{name}" if self.old else f"{root}/{name}"
        os.mkdir(self.path)
        limit = "memory.limit_in_bytes" if self.old else "memory.max"
        self.write(limit, megabytes * 1024 * 1024)
        # Nothing may go to a swap instead.
        with contextlib.suppress(OSError):
            self.write("memory.swappiness" if self.old else "memory.swap.max", 0)

    def write(self, file, value):
        with open(os.path.join(self.path, file), "w") as out:
            out.write(str(value))

    def read(self, file):
        with open(os.path.join(self.path, file)) as text:
            return text.read()

    def join(self):
        self.write("cgroup.procs", os.getpid())

    def killed(self):
        return int(re.search(r"^oom_kill (\d+)", self.read("memory.oom_control" if self.old else "memory.events"), re.M)[1])


def resident(process):
    """Megabytes of its own: now, and the most there were of all kinds."""
    return [shared.memory(process.pid, name) >> 20 for name in ("RssAnon", "VmHWM")]


async def answer(reader, writer):
    """Takes every body and answers with a large one, until the gateway leaves."""
    with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: *(\d+)", head, re.I)
            left = int(length[1]) if length else 0
            while left:
                piece = await reader.read(min(left, 65536))
                if not piece:
                    return writer.close()
                left -= len(piece)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY)
            await writer.drain()
    writer.close()


def serve(port):
    async def forever():
        server = await asyncio.start_server(answer, "127.0.0.1", port, backlog=1024, limit=65536)
        await server.serve_forever()
    asyncio.run(forever())


class World:
    def __init__(self, work, megabytes):
        self.work = work
        self.program = os.environ.get("TOLLHOUSE", os.path.join(ROOT, "target/release/tollhouse"))
        self.group, self.port = Group(megabytes), free_port()
        upstream, redis, admin = free_port(), free_port(), free_port()
        threading.Thread(target=serve, args=(upstream,), daemon=True).start()
        self.start("redis-server", "--port", str(redis), "--save", "")
        # The control plane, with a gateway without requests.
        platform = shared.Platform(self.program, work, bench=upstream)
        platform.public_site()
        config = shared.config(work, "gateway.toml", PORT=self.port, ADMIN=admin, REDIS=redis, CONTROL=platform.control,
                               DATA=platform.data, UPSTREAM=upstream, edits=[(
                                   "[upstreams.bench]", f'[overload]\ncontrol_group = "{self.group.path}"\n\n'
                                   '[upstreams.bench]\nroutes = [{ path = "/*", methods = ["GET", "POST"], '
                                   'body_bytes_max = 2000000 }]')])
        gateway = os.path.join(os.path.dirname(self.program), "gateway")
        self.gateway = self.start(gateway, "--config", config, preexec_fn=self.group.join)
        self.until("the gateway serves", lambda: self.load("1", "-n", "1")["2xx"] == 1)

    def start(self, *command, **options):
        log = open(os.path.join(self.work, "log"), "ab")
        return shared.start(*command, stdout=log, stderr=log, cwd=self.work, **options)

    def until(self, what, holds):
        deadline = time.time() + 60
        while not holds():
            if time.time() > deadline:
                with open(os.path.join(self.work, "log")) as log:
                    sys.exit(f"not in time: {what}\n{log.read()[-3000:]}")
            time.sleep(0.1)

    def load(self, connections, *words):
        """The counts of h2load's answers by class."""
        out = subprocess.run(["timeout", "600", "h2load", "-c", connections, *words, "--connect-to",
                              f"127.0.0.1:{self.port}", f"https://{HOST}:{self.port}/"], capture_output=True, text=True).stdout
        counts, _ = shared.h2load(out)
        return {kind: counts[kind] for kind in ("2xx", "4xx", "5xx")}

    def close(self):
        shared.end_all()
        self.until("the control group is empty", lambda: not self.group.read("cgroup.procs"))
        os.rmdir(self.group.path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=64)
    parser.add_argument("--connections", type=int, default=100)
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--requests", type=int, default=10000)
    chosen = parser.parse_args()
    shared.install({"h2load": "nghttp2-client", "redis-server": "redis-server"})
    failures = 0
    with shared.workplace() as work:
        world = World(work, chosen.megabytes)
        try:
            body = os.path.join(work, "request")
            with open(body, "wb") as out:
                out.write(BODY)
            print(f"idle: {resident(world.gateway)[0]} MB of its own")
            ways = [("HTTP/1", ["--h1"]), ("HTTP/2", ["-m", "1"])]
            if chosen.streams > 1:
                ways.append((f"HTTP/2, {chosen.streams} streams", ["-m", str(chosen.streams)]))
            for name, words in ways:
                seen = world.load(str(chosen.connections), "-n", str(chosen.requests), *words, "-H", HEADER, "-H",
                                  HEADER.replace("filler", "more"), "-d", body)
                alive = world.gateway.poll() is None
                if not alive:
                    print(f"the gateway is gone: {world.gateway.poll()}, killed by the kernel: {world.group.killed()}")
                anonymous, most = resident(world.gateway) if alive else (0, 0)
                holds = alive and world.group.killed() == 0 and seen["2xx"] > 0 and world.load("1", "-n", "1")["2xx"] == 1
                print(f"{'ok    ' if holds else 'BROKEN'}  {name}: {chosen.connections} connections, {chosen.requests} requests: "
                      f"{seen}; {anonymous} MB of its own afterwards, {most} MB resident at the most")
                failures += not holds
                if not alive:
                    break
        finally:
            world.close()
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
