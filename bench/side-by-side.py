#!/usr/bin/env python3
"""The edge beside its peers on this machine: the same upstream, certificate and load, in interleaved rounds of one run.

    bench/run side-by-side [--seconds 5] [--rounds 3] [--only WORK] [--json FILE] [--report]

One core for the proxy, one for load and upstream. Prints requests per second and CPU time per request (user and system
time of the proxy's processes: the least noisy figure), and their ratios; figures of different runs or machines are not
comparable. --report writes docs/reference/performance.json, the table in docs/reference/performance.md and docs/reference/images/performance.svg.

Peers: nginx, nginx with lua and Redis for key and quota, HAProxy, HAProxy with stick tables for key and quota, Envoy, and
bare pingora from this workspace as the floor; each with its own best settings under bench/peers. Needs nginx-extras
lua-nginx-redis haproxy redis-server nghttp2-client (Debian), which it installs as root, Envoy (PyPI), which it puts into
a directory of its own, and the workspace built with --profile dist, which it does.
TOLLHOUSE=PROGRAM (with gateway beside it) EXAMPLES=FOLDER measure another build.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import time

import shared
from loads import fail, handshakes, idle_memory, steady, streaming, throughput, unary, websocket
from report import ratio, report
from shared import ENVOY, ROOT, free_port

TICK = 1 / os.sysconf("SC_CLK_TCK")
DOMAIN = "tollhouse.localhost"
SITE = f"site.{DOMAIN}"
UNLIMITED = "4000000000"
# Upstreams beside the one over HTTP/1.1 without TLS: over TLS, over HTTP/2 without TLS, and one for gRPC over that.
UPSTREAMS = ("secure", "http2", "grpc")
# Milliseconds each way of a line with a round trip of 50.
DELAY = 25


def install():
    shared.install({"nginx": "nginx-extras", "haproxy": "haproxy", "h2load": "nghttp2-client", "redis-server": "redis-server"},
                   files={"/usr/share/lua/5.1/nginx/redis.lua": "lua-nginx-redis",
                          "/usr/lib/nginx/modules/ngx_http_lua_module.so": "nginx-extras"})
    shared.install_envoy()
    if os.cpu_count() < 2:
        fail("two cores are needed: one for the proxy, one for the load")


def build():
    if "TOLLHOUSE" not in os.environ:
        subprocess.run(["cargo", "build", "--quiet", "--locked", "--profile", "dist", "-p", "tollhouse", "-p", "gateway",
                        "--bin", "tollhouse", "--bin", "gateway"], cwd=ROOT, check=True)
    if "EXAMPLES" not in os.environ:
        subprocess.run(["cargo", "build", "--quiet", "--locked", "--profile", "dist", "-p", "gateway", "-p", "quota",
                        "--example", "tls_load", "--example", "cost"], cwd=ROOT, check=True)
        # Where the others are.
        subprocess.run(["cargo", "build", "--quiet", "--locked", "--profile", "dist", "--manifest-path",
                        "bench/bare-proxy/Cargo.toml", "--target-dir", "target/bare-proxy"], cwd=ROOT, check=True)
        shutil.copy(os.path.join(ROOT, "target/bare-proxy/dist/bare_proxy"), os.path.join(ROOT, "target/dist/examples"))


class Proxy:
    """A process under measurement, on the first core. `ports` are further ways to it: a listener for an upstream, or "far",
    a line with a delay."""

    def __init__(self, name, port, process, ports):
        self.name, self.port, self.process, self.ports = name, port, process, ports

    def at(self, way):
        return Proxy(self.name, self.ports.get(way, self.port), self.process, self.ports)

    def pids(self):
        children = subprocess.run(["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True).stdout.split()
        return [self.process.pid, *map(int, children)]

    def cpu(self):
        total = 0.0
        for pid in self.pids():
            with open(f"/proc/{pid}/stat") as stat:
                fields = stat.read().rsplit(")", 1)[1].split()
            total += (int(fields[11]) + int(fields[12])) * TICK
        return total

    def memory(self):
        total = 0
        for pid in self.pids():
            total += shared.memory(pid, "VmRSS")
        return total


class World:
    def __init__(self, work):
        self.work, self.proxies = work, {}
        self.program = os.environ.get("TOLLHOUSE", os.path.join(ROOT, "target/dist/tollhouse"))
        self.gateway = os.path.join(os.path.dirname(self.program), "gateway")
        self.examples = os.environ.get("EXAMPLES", os.path.join(ROOT, "target/dist/examples"))
        self.data = os.path.join(work, "data")
        self.upstream, self.redis, self.echo = free_port(), free_port(), free_port()
        self.upstreams = {name: free_port() for name in UPSTREAMS}
        self.certificate = os.path.join(self.data, "ca/platform.pem")
        self.key_file = os.path.join(self.data, "ca/platform.key")
        self.ca = os.path.join(self.data, "ca/ca.pem")

    def start(self, core, *command):
        log = open(os.path.join(self.work, "log"), "ab")
        return shared.start("taskset", "-c", str(core), *command, stdout=log, stderr=log, cwd=self.work)

    def config(self, name, **values):
        further = {f"{upstream.upper()}_UPSTREAM": port for upstream, port in self.upstreams.items()}
        return shared.config(self.work, name, UPSTREAM=self.upstream, CERTIFICATE=self.certificate, KEY=self.key_file,
                             AUTHORITY=self.ca, SITE=SITE, **further, **values)

    def wait_for(self, port, what):
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.05)
        with open(os.path.join(self.work, "log")) as log:
            fail(f"{what} does not listen:\n{log.read()[-2000:]}")

    def open(self):
        self.open_edge()
        self.open_peers()
        self.open_lines()

    def open_edge(self):
        # The last is one message of gRPC: its head, and 64 bytes.
        for name, body in (("body", "x" * 1024), ("large", "x" * 1024 * 1024), ("message", "\0\0\0\0@" + "x" * 64)):
            with open(os.path.join(self.work, name), "w") as out:
                out.write(body)
        # The control plane, with a gateway without requests.
        plane = shared.Platform(self.program, self.work, before=("taskset", "-c", "1"), bench=self.upstream, **self.upstreams)
        self.open_upstreams()
        port, admin = free_port(), free_port()
        config = self.config("gateway.toml", PORT=port, ADMIN=admin, REDIS=self.redis, CONTROL=plane.control, DATA=self.data)
        edge = self.start(0, self.gateway, "--config", config)
        self.wait_for(port, "the gateway")
        plane.public_site()
        for name in UPSTREAMS:
            plane.public_site(name, name)
        plane.tool("project", "create", "metered", "--plan", "enterprise", "--upstream", "bench",
                   "--per-minute", UNLIMITED, "--per-day", UNLIMITED)
        self.key = re.search(r'"key": *"(th_[^"]*)"', plane.tool("key", "create", "metered"))[1]
        plane.tool("project", "create", "spent", "--plan", "enterprise", "--upstream", "bench",
                   "--per-minute", "1", "--per-day", "1")
        self.spent_key = re.search(r'"key": *"(th_[^"]*)"', plane.tool("key", "create", "spent"))[1]
        ask = ["h2load", "-n", "1", "--h1", "--connect-to", f"127.0.0.1:{port}", "-H",
               f"authorization: Bearer {self.spent_key}", f"https://spent.{DOMAIN}:{port}/"]
        # Once it serves the last of the keys it knows everything; and that was all that this key has.
        for _ in range(400):
            if "1 2xx" in subprocess.run(ask, capture_output=True, text=True).stdout:
                break
            time.sleep(0.05)
        else:
            fail("the gateway does not learn of a key")
        self.proxies["tollhouse"] = Proxy("tollhouse", port, edge, {})

    def open_upstreams(self):
        load = os.path.join(self.examples, "tls_load")
        self.start(1, "nginx", "-c", self.config("upstream.conf", ECHO=self.echo))
        self.start(1, "nginx", "-c", self.config("upstream-secure.conf"))
        self.start(1, load, "echo", str(self.echo))
        self.start(1, load, "grpc-echo", str(self.upstreams["grpc"]))
        self.start(1, "redis-server", "--port", str(self.redis), "--save", "")
        for port in (self.upstream, self.echo, *self.upstreams.values()):
            self.wait_for(port, "an upstream")
        self.wait_for(self.redis, "redis-server")

    def add_peer(self, name, words, template=None, **values):
        """Starts a peer by these words and the path of its configuration, or what `words` makes of its ports."""
        port, ports = free_port(), {upstream: free_port() for upstream in UPSTREAMS}
        if template:
            listeners = {f"{upstream.upper()}_PORT": listener for upstream, listener in ports.items()}
            words = [*words, self.config(template, PORT=port, **listeners, **values)]
        else:
            words = words(port, ports)
        self.proxies[name] = Proxy(name, port, self.start(0, *words), ports)

    def open_peers(self):
        self.add_peer("nginx", ["nginx", "-c"], "nginx.conf")
        self.add_peer("nginx+lua", ["nginx", "-c"], "nginx-lua.conf", REDIS=self.redis, KEYTEXT=self.key,
                      MODULES="/usr/lib/nginx/modules")
        bundle, keys = os.path.join(self.work, "bundle.pem"), os.path.join(self.work, "keys.map")
        with open(bundle, "w") as out:
            for path in (self.certificate, self.key_file):
                with open(path) as part:
                    out.write(part.read())
        with open(keys, "w") as out:
            out.write(f"{hashlib.sha256(self.key.encode()).hexdigest().upper()} metered\n")
        self.add_peer("haproxy", ["haproxy", "-db", "-f"], "haproxy.cfg", BUNDLE=bundle)
        self.add_peer("haproxy+tables", ["haproxy", "-db", "-f"], "haproxy-tables.cfg", BUNDLE=bundle, KEYS=keys)
        self.add_peer("pingora", self.bare_proxy)
        self.add_peer("envoy", [ENVOY, "--concurrency", "1", "--disable-hot-restart", "--log-level", "error", "-c"],
                      "envoy.yaml", ADMIN=free_port())
        for proxy in self.proxies.values():
            self.wait_for(proxy.port, proxy.name)

    def bare_proxy(self, port, ports):
        listeners = [f"{port}=http1=127.0.0.1:{self.upstream}"]
        for name, form in (("secure", "tls"), ("http2", "http2"), ("grpc", "http2")):
            listeners.append(f"{ports[name]}={form}=127.0.0.1:{self.upstreams[name]}")
        return [os.path.join(self.examples, "bare_proxy"), self.certificate, self.key_file, self.ca, SITE, *listeners]

    def open_lines(self):
        lines = []
        for proxy in self.proxies.values():
            proxy.ports["far"] = free_port()
            lines.append(f"{proxy.ports['far']}=127.0.0.1:{proxy.port}")
        self.start(1, os.path.join(self.examples, "tls_load"), "delay", str(DELAY), *lines)
        for proxy in self.proxies.values():
            self.wait_for(proxy.ports["far"], f"the line to {proxy.name}")

    def load(self, *words):
        out = subprocess.run(["taskset", "-c", "1", os.path.join(self.examples, "tls_load"), *map(str, words)],
                             capture_output=True, text=True)
        return json.loads(out.stdout) if out.returncode == 0 else fail(f"tls_load {words}: {out.stderr}")


def works(world, seconds):
    """Name, the figure that decides, whether more of it is better, and what each proxy does for it."""
    site, metered, free = SITE, f"metered.{DOMAIN}", f"demo-free.{DOMAIN}"
    plain = ("tollhouse", "pingora", "nginx", "haproxy", "envoy")
    for protocol in ("h1", "h2"):
        yield (f"TLS and forwarding, {protocol}", "per_second", {
            name: lambda proxy, p=protocol: throughput(world, proxy, seconds, p, site) for name in plain})
    for protocol in ("h1", "h2"):
        do = lambda proxy, p=protocol: throughput(world, proxy, seconds, p, metered, key=world.key)
        yield (f"key, quota, forwarding, {protocol}", "per_second", {
            "tollhouse": do, "nginx+lua": do, "haproxy+tables": do,
            "pingora": lambda proxy, p=protocol: throughput(world, proxy, seconds, p, site)})
    refused = lambda proxy: throughput(world, proxy, seconds, "h1", site, "/refused", status="4xx")
    yield ("refusal without a key, h1", "per_second", {
        "tollhouse": lambda proxy: throughput(world, proxy, seconds, "h1", free, "/v1/store/orders", status="4xx"),
        "nginx": refused, "haproxy": refused, "envoy": refused})
    yield ("refusal over quota, h1", "per_second", {
        "tollhouse": lambda proxy: throughput(world, proxy, seconds, "h1", f"spent.{DOMAIN}", key=world.spent_key, status="4xx"),
        "nginx": refused, "haproxy": refused, "envoy": refused})
    for protocol in ("h1", "h2"):
        yield (f"1 MiB from upstream, {protocol}", "per_second", {
            name: lambda proxy, p=protocol: throughput(world, proxy, seconds, p, site, "/large") for name in plain})
    for protocol in ("h1", "h2"):
        yield (f"1 MiB to upstream, {protocol}", "per_second", {
            name: lambda proxy, p=protocol: throughput(world, proxy, seconds, p, site, "/up", body="large") for name in plain})
    yield from works_of_upstreams(world, seconds, plain)
    yield ("WebSocket messages there and back", "per_second", {
        name: lambda proxy: websocket(world, proxy, seconds, site) for name in plain})
    for kind in ("full", "resumed"):
        yield (f"TLS handshakes, {kind}", "cpu_us", {
            name: lambda proxy, k=kind: handshakes(world, proxy, seconds, k, site) for name in plain})
    yield ("TLS handshakes, X25519MLKEM768", "cpu_us", {
        "tollhouse": lambda proxy: handshakes(world, proxy, seconds, "hybrid", site)})
    yield ("TLS handshakes without a request, full", "cpu_us", {
        name: lambda proxy: handshakes(world, proxy, seconds, "alone", site) for name in plain})
    yield ("TLS handshakes without a request, X25519MLKEM768", "cpu_us", {
        "tollhouse": lambda proxy: handshakes(world, proxy, seconds, "alone-hybrid", site)})
    yield ("memory per idle TLS connection", "bytes", {
        name: lambda proxy: idle_memory(world, proxy, 1000, site) for name in plain})
    for rate in (2000, 6000):
        yield (f"latency at {rate} per second", "p99_us", {
            name: lambda proxy, r=rate: steady(world, proxy, r, seconds, site) for name in plain})
    do = lambda proxy: steady(world, proxy, 6000, seconds, metered, key=world.key)
    yield ("key and quota, latency at 6000 per second", "p99_us", {
        "tollhouse": do, "nginx+lua": do, "haproxy+tables": do, "pingora": lambda proxy: steady(world, proxy, 6000, seconds, site)})


def works_of_upstreams(world, seconds, proxies):
    """As `works`, for upstreams over TLS, HTTP/2 and gRPC, and for clients far away."""
    # nginx speaks HTTP/2 to an upstream only as gRPC.
    for upstream, what, able in (("secure", "TLS", proxies), ("http2", "HTTP/2", [name for name in proxies if name != "nginx"])):
        for protocol in ("h1", "h2"):
            yield (f"{what} to upstream, {protocol}", "per_second", {
                name: lambda proxy, p=protocol, u=upstream: throughput(world, proxy.at(u), seconds, p, f"{u}.{DOMAIN}")
                for name in able})
    host = f"grpc.{DOMAIN}"
    yield ("gRPC unary calls", "per_second", {
        name: lambda proxy: unary(world, proxy.at("grpc"), seconds, host) for name in proxies})
    for calls, in_flight, what in ((32, 1, "32 calls, each with one message at a time"), (1, 100, "one call with 100 at a time")):
        yield (f"gRPC messages there and back, {what}", "per_second", {
            name: lambda proxy, c=calls, i=in_flight: streaming(world, proxy.at("grpc"), seconds, host, c, i)
            for name in proxies})
    for what, path, body in (("from", "/large", None), ("to", "/up", "large")):
        for protocol in ("h1", "h2"):
            yield (f"1 MiB {what} upstream, {protocol}, 4 connections of {2 * DELAY} ms", "per_second", {
                name: lambda proxy, pr=protocol, pa=path, b=body: throughput(
                    world, proxy.at("far"), seconds, pr, SITE, pa, body=b, clients=(4, 1))
                for name in proxies})


def quota_share(world, results):
    """What the quota alone (ledger, bans, the text of its fields) takes of a metered request, in a process of its own."""
    metered = [result for result in results if result["work"] == "key, quota, forwarding, h1"]
    if not metered:
        return None
    cost = int(subprocess.run([os.path.join(world.examples, "cost")], capture_output=True, text=True).stdout) / 1000
    whole = metered[0]["median"]["tollhouse"]["cpu_us"]
    print(f"\nthe quota takes {cost:.2f} of {whole:.1f} µs: without it, {1 - cost / whole:.3f} of the time", flush=True)
    return {"cost_us": cost, "request_us": whole}


def measured(world, arguments):
    results = []
    for name, figure, jobs in works(world, arguments.seconds):
        if arguments.only and arguments.only not in name:
            continue
        rounds = {proxy: [] for proxy in jobs}
        for _ in range(arguments.rounds):
            for proxy, job in jobs.items():
                rounds[proxy].append(job(world.proxies[proxy]))
        medians = {proxy: {key: statistics.median(one[key] for one in all_) for key in all_[0]}
                   for proxy, all_ in rounds.items()}
        results.append({"work": name, "figure": figure, "median": medians, "rounds": rounds})
        show(results[-1])
    return results


def show(result):
    print(f"\n{result['work']}")
    ours = result["median"]["tollhouse"]
    for proxy, median in result["median"].items():
        figures = "  ".join(f"{key} {value:12.1f}  x{ratio(ours[key], value):5.2f}" for key, value in median.items())
        print(f"  {proxy:10} {figures}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", help="works whose name contains this")
    parser.add_argument("--json", help="write the raw figures here")
    parser.add_argument("--report", action="store_true")
    arguments = parser.parse_args()
    install()
    build()
    with shared.workplace() as work:
        world = World(work)
        world.open()
        results = measured(world, arguments)
        quota = quota_share(world, results)
    if arguments.json:
        with open(arguments.json, "w") as out:
            json.dump(results, out, indent=1)
    if arguments.report:
        report(results, quota, arguments)


if __name__ == "__main__":
    main()
