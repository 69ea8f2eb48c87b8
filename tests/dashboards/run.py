#!/usr/bin/env python3
"""Holds config/grafana/dashboards to Grafana's own types, of the version that docker-compose.yml starts.

    tests/dashboards/run.py NODE_MODULES     a folder with the packages of package.json

Grafana ignores an option that it does not know and takes another value for one that it does not understand, without a
word. Its types know them all: dashboard, panels, and the options and field settings of each kind of panel. What queries
mean is for Prometheus to say; tests hold them to metrics that exist.
"""

import glob
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

TYPES = "@grafana/schema/dist/esm/raw"
KINDS = {"timeseries": "TimeSeriesPanelCfg", "stat": "StatPanelCfg"}

# An enumeration's words are as good as its names.
LOOSE = """type Loose<T> = T extends string ? `${T}` : T extends (infer U)[] ? Loose<U>[]
    : T extends object ? {[K in keyof T]: Loose<T[K]>} : T;"""

# Fields of an annotation that belong to its data source, which has no types here.
OF_PROMETHEUS = ("expr", "target", "titleFormat")


def same_version(modules):
    with open(os.path.join(ROOT, "docker-compose.yml")) as compose:
        started = re.search(r"grafana/grafana:([\d.]+)", compose.read())[1]
    with open(os.path.join(modules, "@grafana/schema/package.json")) as package:
        known = json.load(package)["version"]
    if started != known:
        sys.exit(f"docker-compose.yml starts Grafana {started}, and tests/dashboards/package.json has the types of {known}: change one of them")


def statements(number, board):
    """The dashboard as lines of a program that compiles if it is one; with each, what of it the line is."""
    for annotation in board["annotations"]["list"]:
        for field in OF_PROMETHEUS:
            annotation.pop(field, None)
    yield "the whole", f"export const board{number}: Loose<Dashboard> = {json.dumps(board)};"
    for panel in board["panels"]:
        kind = KINDS.get(panel["type"]) or sys.exit(f"{board['title']}: panels of kind {panel['type']} have no types in tests/dashboards/run.py")
        name, said = f"{number}_{panel['id']}", f"of panel {panel['id']}"
        yield f"options {said}", f"export const options{name}: Partial<Loose<{kind}.Options>> = {json.dumps(panel['options'])};"
        fields = panel["fieldConfig"]["defaults"].get("custom", {})
        if panel["type"] == "timeseries":
            yield f"field settings {said}", f"export const fields{name}: Loose<{kind}.FieldConfig> = {json.dumps(fields)};"
        elif fields:
            sys.exit(f"{board['title']}: panels of kind {panel['type']} have no field settings of their own")


def main():
    modules = os.path.abspath(sys.argv[1])
    same_version(modules)
    files = sorted(glob.glob(os.path.join(ROOT, "config/grafana/dashboards/*.json")))
    lines = [f"import type {{Dashboard}} from '{TYPES}/dashboard/x/dashboard_types.gen';"]
    for panel, kind in KINDS.items():
        lines.append(f"import type * as {kind} from '{TYPES}/composable/{panel}/panelcfg/x/{kind}_types.gen';")
    lines += LOOSE.splitlines()
    said = {}
    for number, path in enumerate(files):
        with open(path) as text:
            for what, line in statements(number, json.load(text)):
                lines.append(line)
                said[len(lines)] = f"{os.path.basename(path)}, {what}"
    with tempfile.TemporaryDirectory() as work:
        os.symlink(modules, os.path.join(work, "node_modules"))
        with open(os.path.join(work, "boards.ts"), "w") as program:
            program.write("\n".join(lines))
        compiler = [os.path.join(modules, ".bin/tsc"), "--noEmit", "--strict", "--skipLibCheck", "--preserveSymlinks",
                    "--moduleResolution", "node", "--module", "esnext", "--target", "es2022", "boards.ts"]
        told = subprocess.run(compiler, cwd=work, capture_output=True, text=True)
    if told.returncode:
        place = lambda found: said.get(int(found[1]), "boards.ts")
        sys.exit(re.sub(r"^boards\.ts\((\d+),\d+\)", place, told.stdout, flags=re.M) + told.stderr)
    print(f"{len(files)} dashboards are what Grafana's types say")


main()
