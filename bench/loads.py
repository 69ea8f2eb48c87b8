"""The loads of bench/run side-by-side: each asks one proxy and returns its figures. `world` has the programs and files."""

import os
import subprocess
import sys
import time

from shared import h2load


def fail(message):
    sys.exit(message)


def throughput(world, proxy, seconds, protocol, host, path="/", key=None, status="2xx", body=None, fields=(), clients=(20, 10)):
    """Requests per second at saturation, and microseconds of CPU per request; `body` is the name of a file to send, and
    `clients` the number of connections and, over HTTP/2, of requests at once on each."""
    connections, requests = map(str, clients)
    command = ["taskset", "-c", "1", "h2load", "-c", connections, "-D", str(seconds), "--connect-to", f"127.0.0.1:{proxy.port}"]
    command += ["--h1"] if protocol == "h1" else ["-m", requests]
    for field in (*fields, *([f"authorization: Bearer {key}"] if key else [])):
        command += ["-H", field]
    command += ["-d", os.path.join(world.work, body)] if body else []
    before = proxy.cpu()
    out = subprocess.run([*command, f"https://{host}:{proxy.port}{path}"], capture_output=True, text=True).stdout
    cpu = proxy.cpu() - before
    counts, took = h2load(out)
    done, wanted = counts["done"], counts[status] == sum(counts[kind] for kind in ("2xx", "3xx", "4xx", "5xx"))
    # h2load counts responses with 4xx and 5xx as failed.
    failed = counts["failed"] - (done if status in ("4xx", "5xx") else 0)
    if not done or not wanted or failed or counts["errored"] or took < 0.95 * seconds:
        fail(f"{proxy.name}, {host}{path}: not every response was {status} for {seconds} s: {dict(counts)}, {took} s\n{out}")
    # It counts for the planned time, and then ends its connections.
    return {"per_second": done / min(took, seconds), "cpu_us": cpu / done * 1e6}


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


def unary(world, proxy, seconds, host):
    # h2load does not look at trailers: a whole call first.
    world.load("grpc", 1, 1, f"127.0.0.1:{proxy.port}", host, world.ca, 0)
    return throughput(world, proxy, seconds, "h2", host, "/bench.Echo/Unary", body="message",
                      fields=("content-type: application/grpc", "te: trailers"))


def streaming(world, proxy, seconds, host, calls, in_flight):
    return counted(world, proxy, seconds, host, "messages", "grpc", calls, in_flight)[1]


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
