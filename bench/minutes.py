#!/usr/bin/env python3
"""How long a newcomer and a developer wait: writes the table in docs/develop/build-times.md.

    bench/run minutes [--only ROW[,ROW]] [--units]

ROWs: up, check, again, quick, build, crates. The first three start in a fresh clone of HEAD with nothing built; downloaded
crates and installed tools stay where they are. Rows that are not measured keep their figure, and a row that fails ends the
run without losing those before it. --units also builds what ./up builds with `cargo build --timings` and lists the units
that cost most. Needs what ./check needs, and a quiet machine.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "develop" / "build-times.md"
TOUCHED = "gateway/src/pipeline.rs"
ROWS = {
    "up": ("`./up` in a fresh clone, until it serves", "5 m"),
    "check": ("`./check` in a fresh clone", "20 m"),
    "again": ("`./check` again after changing one file in gateway/", "14 m"),
    "quick": ("`./check quick` after changing one file in gateway/", "6 m"),
    "build": ("development build after changing one line in gateway/, until the program runs", "40 s"),
    "crates": ("crates in the program", "335"),
}
UNITS = 10


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--only", default=",".join(ROWS))
    arguments.add_argument("--units", action="store_true")
    arguments = arguments.parse_args()
    only = arguments.only.split(",")
    figures = {}
    with tempfile.TemporaryDirectory() as work:
        clone = Path(work) / "clone"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        if arguments.units:
            write_units(clone)
            subprocess.run(["rm", "-rf", str(clone / "target")], check=True)
        for row, measure in [("up", up), ("check", check), ("again", again), ("quick", quick), ("build", build), ("crates", crates)]:
            if row in only:
                figures[row] = measure(clone)
                print(f"{ROWS[row][0]}: {figures[row]}", flush=True)
                write(figures)


def minutes(began):
    seconds = round(time.monotonic() - began)
    return f"{seconds // 60} m {seconds % 60:02} s" if seconds >= 60 else f"{seconds} s"


def up(clone):
    began = time.monotonic()
    ports = ["--http-port", "0", "--https-port", "0", "--admin-port", "0"]
    platform = subprocess.Popen(["./up", "--json", *ports, "--data-dir", str(clone / "data")], cwd=clone, stdout=subprocess.PIPE)
    if not platform.stdout.readline().startswith(b"{"):
        sys.exit("./up did not start the platform")
    taken = minutes(began)
    platform.send_signal(signal.SIGINT)
    platform.wait(60)
    return taken


def run(clone, *command):
    began = time.monotonic()
    if subprocess.run(command, cwd=clone, check=False, stdout=sys.stderr).returncode:
        sys.exit(f"{' '.join(command)} failed: its time means nothing")
    return minutes(began)


def check(clone):
    return run(clone, "./check")


def touch(clone):
    """A line that changes what is compiled, and that the ratchet allows."""
    with open(clone / TOUCHED, "a", encoding="utf-8") as file:
        file.write(f'\nconst _: &str = "{time.time_ns()}";\n')
    ratchet = clone / "tools/ratchet.txt"
    more = lambda found: found.group(1) + str(int(found.group(2)) + 1)
    ratchet.write_text(re.sub(r"^(code-gateway +)(\d+)$", more, ratchet.read_text(), flags=re.MULTILINE))


def again(clone):
    touch(clone)
    return run(clone, "./check")


def quick(clone):
    # Without this the time would include the build of everything, where no other row has done it.
    run(clone, "./check", "quick")
    touch(clone)
    return run(clone, "./check", "quick")


def build(clone):
    command = ["bash", "-c", "cargo build --quiet --locked --features test-world && target/debug/tollhouse --version"]
    run(clone, *command)
    touch(clone)
    return run(clone, *command)


def crates(clone):
    tree = ["cargo", "tree", "--locked", "-p", "tollhouse", "--no-default-features", "-e", "normal,build", "--prefix", "none",
            "--no-dedupe"]
    lines = subprocess.run(tree, cwd=clone, check=True, capture_output=True, text=True).stdout.splitlines()
    return str(len({line.split(" (")[0] for line in lines if line.strip()}))


def write_units(clone):
    subprocess.run(["cargo", "build", "--release", "--locked", "--no-default-features", "--timings"], cwd=clone, check=True)
    page = (clone / "target/cargo-timings/cargo-timing.html").read_text()
    units = json.loads(re.search(r"UNIT_DATA = (\[.*?\]);\n", page, re.DOTALL).group(1))
    total = sum(unit["duration"] for unit in units)
    costs = {}
    for unit in units:
        name = f"{unit['name']} {unit['version'].split('+')[0]}"
        costs[name] = costs.get(name, 0) + unit["duration"]
    rows = sorted(costs.items(), key=lambda cost: -cost[1])[:UNITS]
    longest = ", ".join(f"{name} {100 * seconds / total:.1f} %" for name, seconds in rows)
    replace("units", f"{len(units)} units, {total:.0f} s of one core. The longest: {longest}.")


def write(figures):
    known = dict(re.findall(r"^\| (.+?) \| .+? \| (.+?) \|$", PAGE.read_text(), re.MULTILINE))
    table = ["| | at most | measured |", "|---|---|---|"]
    for row, (what, most) in ROWS.items():
        table.append(f"| {what} | {most} | {figures.get(row) or known.get(what, 'not measured')} |")
    replace("rows", "\n".join(table))


def replace(mark, text):
    page = PAGE.read_text()
    pattern = rf"(<!-- {mark} -->\n).*?(<!-- end of {mark} -->)"
    PAGE.write_text(re.sub(pattern, lambda found: found.group(1) + text + "\n" + found.group(2), page, flags=re.DOTALL))


if __name__ == "__main__":
    main()
