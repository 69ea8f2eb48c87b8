#!/usr/bin/env python3
"""Flame graphs of the saturated edge: where its processor time goes when it forwards over HTTP/1 and HTTP/2, takes keys
and quotas, refuses, and shakes hands. Writes target/flames/WORK.svg.

    bench/run flames [--seconds 8] [--only WORK]

The edge on one core, load and upstream on the other, as in bench/run side-by-side. Samples are of the time that passes on the
processor, a thousand a second, of the program and the kernel. Needs perf (Debian: linux-perf) and what bench/run side-by-side
needs; the pictures are made by inferno, which is put into a directory of its own.
"""

import argparse
import importlib.machinery
import importlib.util
import os
import subprocess
import sys

import shared
from shared import ROOT

INFERNO_VERSION = "0.12.8"
FOLDER = os.path.join(shared.TOOLS, f"inferno-{INFERNO_VERSION}")
DOMAIN = "tollhouse.localhost"


def neighbour(name):
    """A script of this folder, as a module."""
    loader = importlib.machinery.SourceFileLoader(name.replace("-", "_"), os.path.join(ROOT, "bench", f"{name}.py"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def install():
    shared.install({"perf": "linux-perf"})
    if not os.path.exists(os.path.join(FOLDER, "bin", "inferno-flamegraph")):
        subprocess.run(["cargo", "install", "--quiet", "--locked", "inferno", "--version", INFERNO_VERSION, "--root", FOLDER],
                       check=True)


def works(side, world, seconds):
    edge, site = world.proxies["tollhouse"], f"site.{DOMAIN}"
    through = lambda *words, **more: side.throughput(world, edge, seconds, *words, **more)
    return {
        "forward-h1": lambda: through("h1", site),
        "forward-h2": lambda: through("h2", site),
        "metered-h1": lambda: through("h1", f"metered.{DOMAIN}", key=world.key),
        "metered-h2": lambda: through("h2", f"metered.{DOMAIN}", key=world.key),
        "refusal-h1": lambda: through("h1", f"demo-free.{DOMAIN}", "/v1/store/orders", status="4xx"),
        "handshakes": lambda: side.handshakes(world, edge, seconds, "full", site),
    }


def draw(work, name, recorded):
    """From samples to a picture, by a pipe of three programs; each must succeed."""
    os.makedirs(os.path.join(ROOT, "target/flames"), exist_ok=True)
    picture = os.path.join(ROOT, "target/flames", f"{name}.svg")
    tool = lambda program: os.path.join(FOLDER, "bin", program)
    with open(picture, "wb") as out, open(os.path.join(work, "log"), "ab") as log:
        steps = [["perf", "script", "--input", recorded], [tool("inferno-collapse-perf")],
                 [tool("inferno-flamegraph"), "--title", f"Tollhouse: {name}", "--minwidth", "0.5", "--width", "1200"]]
        processes, source = [], subprocess.DEVNULL
        for step in steps:
            last = step is steps[-1]
            process = subprocess.Popen(step, stdin=source, stdout=out if last else subprocess.PIPE, stderr=log)
            processes.append(process)
            source = process.stdout
        if any([process.wait() for process in processes]):
            sys.exit(f"the picture of {name} cannot be drawn; see {work}/log")
    return picture


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--only", help="works whose name contains this")
    arguments = parser.parse_args()
    side = neighbour("side-by-side")
    side.install()
    install()
    side.build()
    with shared.workplace() as work:
        world = side.World(work)
        world.open_edge()
        for name, job in works(side, world, arguments.seconds).items():
            if arguments.only and arguments.only not in name:
                continue
            recorded = os.path.join(work, name)
            perf = shared.start(
                "taskset", "-c", "1", "perf", "record", "--quiet", "--event", "cpu-clock", "--freq", "999", "--call-graph",
                "dwarf,16384", "--pid", str(world.proxies["tollhouse"].process.pid), "--output", recorded,
                "--", "sleep", str(max(1, arguments.seconds - 2)), stderr=subprocess.DEVNULL)
            figures = job()
            perf.wait()
            print(f"{name}: {figures['per_second']:,.0f} per second while watched; {draw(work, name, recorded)}", flush=True)


main()
