#!/usr/bin/env python3
"""A gateway under slow clients, and under tools that we did not write: TLS policy, HTTP/2 load and conformance. Prints what
is seen.

    bench/run public-tools [--seconds 20] [--connections 2000] [--only slow|tls|h2|h2spec|floods]

Fails when a slow client outlives its deadline, when others wait more than twice as long beside slow clients or floods of
HTTP/2, when a flood takes memory, when an old protocol is offered, when the grade for TLS is not A+ or there is a finding
above LOW but of the test platform's certificate and names, when an HTTP/2 request fails, or a test of h2spec.
Needs sslscan, openssl, dig, hexdump and nghttp2-client (Debian), which it installs as root, testssl.sh of Debian 13, because
that of Debian 12 gives no grade, which it puts into a folder of its own; and the release build, which bench/run makes.
h2spec is in no package: it is run when it is on the path, and said to be missing otherwise.
TOLLHOUSE=PROGRAM measures another build.
"""

import argparse
import asyncio
import collections
import contextlib
import hashlib
import json
import multiprocessing
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import time
import urllib.request

from floods import PATH, floods
from shared import ROOT, TOOLS, Platform, broken, free_port, h2load, install, promise, stand_back, workplace

PACKAGES = {"sslscan": "sslscan", "h2load": "nghttp2-client", "openssl": "openssl", "dig": "bind9-dnsutils", "hexdump": "bsdextrautils"}
TESTSSL = "https://deb.debian.org/debian/pool/main/t/testssl.sh/testssl.sh_3.2.1+dfsg-1_all.deb"
TESTSSL_SHA256 = "c6920c9565820e25db2d991ea8c9db882ea339773b126e47e26d623624a6cbe3"
HOST = "site.tollhouse.localhost"
# Another site, whose requests are measured, with an idle upstream of its own. The first site gets requests too: does it
# still answer a client that is not slow?
OTHER = "other.tollhouse.localhost"
# A site that takes keys, whose responses carry the headers of an API: the promise to be asked over TLS alone among them.
API = "demo-free.tollhouse.localhost"


def install_testssl():
    """The program, in a folder of its own."""
    folder = os.path.join(TOOLS, "testssl-3.2.1")
    if not os.path.exists(folder):
        os.makedirs(TOOLS, exist_ok=True)
        package, _ = urllib.request.urlretrieve(TESTSSL)
        with open(package, "rb") as content:
            if hashlib.sha256(content.read()).hexdigest() != TESTSSL_SHA256:
                sys.exit(f"{TESTSSL} is not what it was")
        subprocess.run(["dpkg-deb", "--extract", package, f"{folder}.new"], check=True)
        urllib.request.urlcleanup()
        os.rename(f"{folder}.new", folder)
    os.environ["TESTSSL_INSTALL_DIR"] = os.path.join(folder, "etc/testssl")
    return os.path.join(folder, "usr/bin/testssl")


def named(work):
    """Words before a command that make our hosts this machine for it: tools take names, and not every resolver knows ours."""
    try:
        socket.getaddrinfo(HOST, 443)
        return []
    except socket.gaierror:
        hosts = os.path.join(work, "hosts")
        with open(hosts, "w") as out:
            out.write(f"127.0.0.1 localhost {HOST} {API}\n")
        # A view of the file system of its own, which only root may have.
        return ["unshare", "--mount", "sh", "-c", f'mount --bind {hosts} /etc/hosts && exec "$0" "$@"']


ALONE = multiprocessing.get_context("fork")


class Upstream(ALONE.Process):
    """Answers every request with a few bytes, or with more than any buffer holds. A process of its own, so that those who
    measure never wait for its interpreter; it calls `begin` first."""

    SMALL = b"all is well"
    LARGE = b"x" * 65536
    PIECES = 512

    def __init__(self, begin=lambda: None):
        super().__init__(daemon=True)
        self.begin = begin
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port = self.listener.getsockname()[1]
        self.floods = ALONE.Value("q")

    def run(self):
        self.begin()
        asyncio.run(self.listen())

    async def listen(self):
        server = await asyncio.start_server(self.serve, sock=self.listener)
        await server.serve_forever()

    async def serve(self, reader, writer):
        # The gateway may leave whenever it likes.
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                path = (await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)[1]
                self.floods.value += path == PATH
                body, pieces = (self.LARGE, self.PIECES) if path == b"/large" else (self.SMALL, 1)
                # In one write with the head, or it would wait until that has arrived.
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (len(body) * pieces) + body)
                for _ in range(1, pieces):
                    await writer.drain()
                    writer.write(body)
        writer.close()


class Gateway:
    def __init__(self, work):
        before = ()
        if os.cpu_count() > 1:
            # One core for the gateway, another for those who ask it.
            before = ("taskset", "-c", "0")
            os.sched_setaffinity(0, {1})
        program = os.environ.get("TOLLHOUSE", os.path.join(ROOT, "target/release/tollhouse"))
        self.upstream, others = Upstream(stand_back), Upstream()
        self.upstream.start()
        others.start()
        self.port = free_port()
        platform = Platform(program, work, https_port=self.port, before=before, bench=self.upstream.port, other=others.port)
        platform.public_site()
        platform.public_site("other", "other")
        self.pid, self.authority = platform.process.pid, os.path.join(platform.data, "ca/ca.pem")
        self.context = ssl.create_default_context(cafile=self.authority)

    def ask(self, host=OTHER):
        """One request on a connection of its own: the status, and how long it took."""
        began = time.perf_counter()
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as tcp:
            with self.context.wrap_socket(tcp, server_hostname=host) as tls:
                tls.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
                answer = tls.recv(65536)
        return answer[9:12].decode(), time.perf_counter() - began

    def latencies(self, going_on, same=None):
        """How long the other site's requests take; every tenth time the first site is asked too, and its status counted."""
        took = []
        while going_on():
            status, one = self.ask()
            assert status == "200", status
            took.append(one)
            if same is not None and len(took) % 10 == 0:
                same[self.ask(HOST)[0]] += 1
            time.sleep(0.02)
        return sorted(took)


def percentile(took, part):
    return took[min(len(took) - 1, int(len(took) * part))] * 1000


ARRIVALS_PER_SECOND = 200
# Bytes, as slowhttptest has them.
RECEIVE_BUFFER = 1024


async def slow_client(gateway, number, address, kind, outcome):
    """Connects, is slow, and notes for how long it was let."""
    reader = writer = tcp = None
    # The subject is slow clients, not a burst of handshakes.
    await asyncio.sleep(number / ARRIVALS_PER_SECOND)
    try:
        source = ("127.0.%d.%d" % (address // 250 + 2, address % 250 + 1), 0)
        tcp = socket.socket()
        tcp.setblocking(False)
        # Before it connects, so that little is on its way when it does not read.
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        tcp.bind(source)
        await asyncio.get_running_loop().sock_connect(tcp, ("127.0.0.1", gateway.port))
        reader, writer = await asyncio.open_connection(sock=tcp, ssl=gateway.context, server_hostname=HOST, limit=1024)
        began = time.perf_counter()
        if kind == "heads":
            first, drip = f"GET / HTTP/1.1\r\nHost: {HOST}\r\nX-Slow: ", b"x"
        elif kind == "bodies":
            first, drip = f"POST / HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 8192\r\n\r\n", b"x"
        else:
            first, drip = f"GET /large HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n", b""
            writer.transport.pause_reading()
        writer.write(first.encode())
        while time.perf_counter() - began < 90:
            if drip:
                writer.write(drip)
                with contextlib.suppress(asyncio.TimeoutError):
                    while await asyncio.wait_for(reader.read(1024), 1):
                        pass
                    break
            else:
                await asyncio.sleep(1)
                # Nothing is read; whether the other side has given up is asked of the socket, which a reset ends.
                if writer.transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) or \
                        tcp_state(writer.transport.get_extra_info("socket")) != ESTABLISHED:
                    break
        outcome.append(time.perf_counter() - began)
    except OSError:
        outcome.append(time.perf_counter() - began if writer else -1)
    finally:
        if writer:
            writer.transport.abort()
        elif tcp:
            tcp.close()


def slow_clients(gateway, count, kind, outcomes):
    async def all_of_them():
        # One address may have 256 connections. All addresses begin together, as those of an attacker do.
        outcome, addresses = [], -(-count // 100)
        await asyncio.gather(*(slow_client(gateway, number, number % addresses, kind, outcome) for number in range(count)))
        return outcome

    stand_back()
    outcomes.put(asyncio.run(all_of_them()))


ESTABLISHED = 1


def tcp_state(peer):
    return peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]


def slow(gateway, seconds, connections):
    def calm_requests():
        until = time.time() + max(5, seconds / 2)
        return gateway.latencies(lambda: time.time() < until)

    calm, seen = calm_requests(), []
    # What they are slow at, and when they must be gone.
    for kind, gone_after in [("heads", 11), ("bodies", 16), ("reading", 41)]:
        outcomes = ALONE.SimpleQueue()
        attack = ALONE.Process(target=slow_clients, args=(gateway, connections, kind, outcomes))
        attack.start()
        same = collections.Counter()
        beside = gateway.latencies(attack.is_alive, same)
        outcome = sorted(took for took in outcomes.get() if took >= 0)
        held = [took for took in outcome if took >= 3]
        print(f"slow {kind}: {len(outcome)} of {connections} were let in, {len(held)} of them for {min(held, default=0):.1f} to "
              f"{max(held, default=0):.1f} s; {len(beside)} requests of others, p50 {percentile(beside, .5):.1f} ms, "
              f"p99 {percentile(beside, .99):.1f} ms", flush=True)
        promise(bool(held) and held[-1] <= gone_after, f"slow {kind}: no slow client is left after {gone_after} s")
        refused = same.total() - same["200"]
        promise(same.total() > 0 and refused == 0,
                f"slow {kind}: {refused} of {same.total()} requests of other clients were refused at the same site")
        seen.append((kind, percentile(beside, .99)))
        calm += calm_requests()
    calm.sort()
    usual = percentile(calm, .99)
    print(f"without slow clients: {len(calm)} requests, p50 {percentile(calm, .5):.1f} ms, p99 {usual:.1f} ms")
    for kind, waited in seen:
        promise(waited <= 2 * usual, f"slow {kind}: others wait {waited / usual:.2f} times as long, at most twice")


def tls(gateway, work):
    scan = subprocess.run(["sslscan", "--no-colour", f"--sni-name={API}", f"127.0.0.1:{gateway.port}"],
                          capture_output=True, text=True).stdout
    for protocol, wanted in [("SSLv2", "disabled"), ("SSLv3", "disabled"), ("TLSv1.0", "disabled"),
                             ("TLSv1.1", "disabled"), ("TLSv1.2", "enabled"), ("TLSv1.3", "enabled")]:
        said = re.search(rf"^{re.escape(protocol)}\s+(\w+)", scan, re.M)
        promise(bool(said) and said[1] == wanted, f"sslscan: {protocol} {said[1] if said else '?'}")
    out = os.path.join(work, "testssl.json")
    subprocess.run([*named(work), install_testssl(), "--quiet", "--color", "0", "--warnings", "off", "--ip", "127.0.0.1",
                    "--add-ca", gateway.authority, "--jsonfile", out, f"{API}:{gateway.port}"],
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(out) as report:
        findings = json.load(report)
    said = {one["id"]: one["finding"] for one in findings}
    why = "; ".join(text for name, text in said.items() if name.startswith("grade_cap_reason"))
    promise(said.get("overall_grade") == "A+", f"testssl.sh: {len(findings)} findings, grade {said.get('overall_grade')} {why}")
    # What is left out: the authority of a test platform publishes no revocation lists and no transparency logs, its names
    # have no CAA record; which headers a page wants is its own; and what testssl.sh says of itself.
    ours = [one for one in findings if one["severity"] in ("MEDIUM", "HIGH", "CRITICAL") and
            not one["id"].startswith(("cert_", "security_headers", "DNS_CAArecord", "engine_problem", "scanProblem"))]
    for one in ours:
        print(f"  {one['severity']}: {one['id']}: {one['finding']}")
    promise(not ours, "testssl.sh: nothing above LOW except the findings about the test authority")


def h2(gateway, work):
    # As many requests in progress as one visitor may have, and no more for each connection than it may have: h2load counts the
    # rest of a connection that gets GOAWAY as failed.
    text = subprocess.run([*named(work), "h2load", "-c", "8", "-m", "20", "-n", "72000", f"https://{HOST}:{gateway.port}/"],
                          capture_output=True, text=True).stdout
    print("h2load: " + "; ".join(line for line in text.splitlines() if line.startswith(("finished", "requests:"))))
    counts, _ = h2load(text)
    failures = sum(counts[kind] for kind in ("failed", "errored", "timeout"))
    promise(counts["succeeded"] > 0 and failures == 0, "h2load: no request fails")


def h2spec(gateway, work):
    program = shutil.which("h2spec")
    if not program:
        print("NOT RUN: h2spec (https://github.com/summerwind/h2spec) is not on the path")
        return
    text = subprocess.run([*named(work), program, "-h", HOST, "-p", str(gateway.port), "-t", "-k", "-S", "-o", "2"],
                          capture_output=True, text=True).stdout
    counts = re.search(r"(\d+) tests, (\d+) passed, (\d+) skipped, (\d+) failed", text)
    for line in text.splitlines():
        if "×" in line:
            print(line.strip())
    promise(bool(counts) and counts[1] == counts[2], f"h2spec, strict: {counts[0] if counts else text[-200:]}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--connections", type=int, default=2000)
    parser.add_argument("--only", choices=["slow", "tls", "h2", "h2spec", "floods"])
    chosen = parser.parse_args()
    install(PACKAGES)
    with workplace() as work:
        gateway = Gateway(work)
        if chosen.only in (None, "h2"):
            h2(gateway, work)
        if chosen.only in (None, "h2spec"):
            h2spec(gateway, work)
        if chosen.only in (None, "tls"):
            tls(gateway, work)
        if chosen.only in (None, "floods"):
            floods(gateway, HOST, OTHER, work)
        if chosen.only in (None, "slow"):
            slow(gateway, chosen.seconds, chosen.connections)
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
