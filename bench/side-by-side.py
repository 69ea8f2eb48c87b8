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
import sys
import time

import shared
from report import ratio, report
from shared import ENVOY, ROOT, free_port

TICK = 1 / os.sysconf("SC_CLK_TCK")
DOMAIN = "tollhouse.localhost"
UNLIMITED = "4000000000"


def fail(message):
    sys.exit(message)


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
    """A process under measurement, on the first core."""

    def __init__(self, name, port, process):
        self.name, self.port, self.process = name, port, process

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
        self.certificate = os.path.join(self.data, "ca/platform.pem")
        self.key_file = os.path.join(self.data, "ca/platform.key")
        self.ca = os.path.join(self.data, "ca/ca.pem")

    def start(self, core, *command):
        log = open(os.path.join(self.work, "log"), "ab")
        return shared.start("taskset", "-c", str(core), *command, stdout=log, stderr=log, cwd=self.work)

    def config(self, name, **values):
        return shared.config(self.work, name, UPSTREAM=self.upstream, **values)

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

    def open_edge(self):
        for name, length in (("body", 1024), ("large", 1024 * 1024)):
            with open(os.path.join(self.work, name), "w") as body:
                body.write("x" * length)
        self.start(1, "nginx", "-c", self.config("upstream.conf", ECHO=self.echo))
        self.start(1, os.path.join(self.examples, "tls_load"), "echo", str(self.echo))
        self.start(1, "redis-server", "--port", str(self.redis), "--save", "")
        self.wait_for(self.upstream, "the upstream")
        self.wait_for(self.redis, "redis-server")
        # The control plane, with a gateway that nobody asks.
        plane = shared.Platform(self.program, self.work, before=("taskset", "-c", "1"), bench=self.upstream)
        port, admin = free_port(), free_port()
        config = self.config("gateway.toml", PORT=port, ADMIN=admin, REDIS=self.redis, CONTROL=plane.control, DATA=self.data)
        edge = self.start(0, self.gateway, "--config", config)
        self.wait_for(port, "the gateway")
        plane.public_site()
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
        self.proxies["tollhouse"] = Proxy("tollhouse", port, edge)

    def open_peers(self):
        tls = {"CERTIFICATE": self.certificate, "KEY": self.key_file}
        port = free_port()
        self.proxies["nginx"] = Proxy("nginx", port, self.start(0, "nginx", "-c", self.config("nginx.conf", PORT=port, **tls)))
        port = free_port()
        config = self.config("nginx-lua.conf", PORT=port, REDIS=self.redis, KEYTEXT=self.key,
                             MODULES="/usr/lib/nginx/modules", **tls)
        self.proxies["nginx+lua"] = Proxy("nginx+lua", port, self.start(0, "nginx", "-c", config))
        bundle, port = os.path.join(self.work, "bundle.pem"), free_port()
        with open(bundle, "w") as out:
            for path in (self.certificate, self.key_file):
                with open(path) as part:
                    out.write(part.read())
        config = self.config("haproxy.cfg", PORT=port, BUNDLE=bundle)
        self.proxies["haproxy"] = Proxy("haproxy", port, self.start(0, "haproxy", "-db", "-f", config))
        keys, port = os.path.join(self.work, "keys.map"), free_port()
        with open(keys, "w") as out:
            out.write(f"{hashlib.sha256(self.key.encode()).hexdigest().upper()} metered\n")
        config = self.config("haproxy-tables.cfg", PORT=port, BUNDLE=bundle, KEYS=keys)
        self.proxies["haproxy+tables"] = Proxy("haproxy+tables", port, self.start(0, "haproxy", "-db", "-f", config))
        port = free_port()
        bare = os.path.join(self.examples, "bare_proxy")
        self.proxies["pingora"] = Proxy("pingora", port, self.start(
            0, bare, str(port), self.certificate, self.key_file, f"127.0.0.1:{self.upstream}"))
        port, admin = free_port(), free_port()
        config = self.config("envoy.yaml", PORT=port, ADMIN=admin, **tls)
        self.proxies["envoy"] = Proxy("envoy", port, self.start(
            0, ENVOY, "--concurrency", "1", "--disable-hot-restart", "--log-level", "error", "-c", config))
        for proxy in self.proxies.values():
            self.wait_for(proxy.port, proxy.name)

    def load(self, *words):
        out = subprocess.run(["taskset", "-c", "1", os.path.join(self.examples, "tls_load"), *map(str, words)],
                             capture_output=True, text=True)
        return json.loads(out.stdout) if out.returncode == 0 else fail(f"tls_load {words}: {out.stderr}")


def throughput(world, proxy, seconds, protocol, host, path="/", key=None, status="2xx", body=None):
    """Requests per second at saturation, and microseconds of CPU per request; `body` is the name of a file to send."""
    command = ["taskset", "-c", "1", "h2load", "-c", "20", "-D", str(seconds), "--connect-to", f"127.0.0.1:{proxy.port}"]
    command += ["--h1"] if protocol == "h1" else ["-m", "10"]
    command += ["-H", f"authorization: Bearer {key}"] if key else []
    command += ["-d", os.path.join(world.work, body)] if body else []
    before = proxy.cpu()
    out = subprocess.run([*command, f"https://{host}:{proxy.port}{path}"], capture_output=True, text=True).stdout
    cpu = proxy.cpu() - before
    counted = {kind: int(count) for count, kind in re.findall(r"(\d+) (2xx|3xx|4xx|5xx)", out)}
    total = sum(counted.values())
    if total == 0 or counted.get(status, 0) != total:
        fail(f"{proxy.name}, {host}{path}: not every response was {status}: {counted}\n{out}")
    return {"per_second": total / seconds, "cpu_us": cpu / total * 1e6}


def counted(world, proxy, seconds, host, counts, *kind):
    """What our own load says, and the figures of what it counts."""
    before = proxy.cpu()
    out = world.load(*kind, f"127.0.0.1:{proxy.port}", host, world.ca, seconds)
    cpu = proxy.cpu() - before
    return out, {"per_second": out[counts] / seconds, "cpu_us": cpu / out[counts] * 1e6}


def handshakes(world, proxy, seconds, kind, host):
    out, figures = counted(world, proxy, seconds, host, "handshakes", "handshakes", kind)
    share = out["resumed"] / out["handshakes"]
    if (kind == "resumed") != (share > 0.9):
        fail(f"{proxy.name}: {out} is not what {kind} handshakes are")
    return figures


def websocket(world, proxy, seconds, host):
    return counted(world, proxy, seconds, host, "messages", "websocket")[1]


def idle_memory(world, proxy, count, host):
    before = proxy.memory()
    command = ["taskset", "-c", "1", os.path.join(world.examples, "tls_load"), "idle", str(count),
               f"127.0.0.1:{proxy.port}", host, world.ca]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    if not holder.stdout.readline():
        fail(f"{proxy.name} does not hold {count} connections")
    time.sleep(1)  # what was freed goes back to the system
    after = proxy.memory()
    holder.stdin.close()
    holder.wait()
    return {"bytes": (after - before) / count}


def steady(world, proxy, rate, seconds, host, key=None):
    """Latencies, and microseconds of CPU per request, at a rate that all keep up with: each wakes the load as often."""
    words = ["steady", rate, f"127.0.0.1:{proxy.port}", host, world.ca, seconds] + ([key] if key else [])
    before = proxy.cpu()
    out = world.load(*words)
    cpu = proxy.cpu() - before
    if out["failed"]:
        fail(f"{proxy.name}: {out}")
    return {"p50_us": out["p50_us"], "p99_us": out["p99_us"], "p999_us": out["p999_us"], "cpu_us": cpu / (rate * seconds) * 1e6}


def works(world, seconds):
    """Name, the figure that decides, whether more of it is better, and what each proxy does for it."""
    site, metered, free = f"site.{DOMAIN}", f"metered.{DOMAIN}", f"demo-free.{DOMAIN}"
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
