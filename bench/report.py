"""What `bench/run side-by-side --report` writes: docs/reference/performance.json, the table in docs/reference/performance.md
and the picture."""

import json
import os
import platform
import re
import subprocess
import time

from shared import ENVOY_VERSION, ROOT

PEER_NAMES = ("pingora", "nginx", "nginx+lua", "haproxy", "haproxy+tables", "envoy")


def ratio(ours, theirs):
    return ours / theirs if theirs else float("nan")


def commit():
    run = lambda *words: subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    return run("rev-parse", "--short", "HEAD") + (" and changes" if run("status", "--porcelain", "-uno") else "")


def machine():
    with open("/proc/cpuinfo") as info:
        model = re.search(r"model name\s*: (.*)", info.read())
    return f"{model[1] if model else platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}"


def versions():
    first = lambda *words: (lambda out: (out.stdout + out.stderr).splitlines()[0])(
        subprocess.run(words, capture_output=True, text=True))
    return {"nginx": first("nginx", "-v"), "haproxy": first("haproxy", "-v"), "redis": first("redis-server", "--version"),
            "envoy": f"Envoy {ENVOY_VERSION}"}


def table(results):
    lines = ["| Work | Figure | Tollhouse | " + " | ".join(PEER_NAMES) + " |",
             "|" + "---|" * (3 + len(PEER_NAMES))]
    units = {"per_second": "per second", "cpu_us": "CPU µs each", "bytes": "bytes", "p50_us": "p50 µs", "p99_us": "p99 µs",
             "p999_us": "p99.9 µs"}
    for result in results:
        ours = result["median"]["tollhouse"]
        number = lambda key, value: f"{value:,.1f}" if key == "cpu_us" else f"{value:,.0f}"
        cells = [[units[key] for key in ours], [number(key, value) for key, value in ours.items()]]
        for peer in PEER_NAMES:
            theirs = result["median"].get(peer, {})
            cells.append([f"{number(key, theirs[key])} (×{ratio(value, theirs[key]):.2f})" for key, value in ours.items() if theirs.get(key)])
        lines.append(f"| {result['work']} | " + " | ".join("<br>".join(cell) for cell in cells) + " |")
    return "\n".join(lines)


def chart(results):
    """Throughput as bars, each work's highest as wide as the picture: read by length and by number, not by colour."""
    rows, y = [], 10
    colours = {"tollhouse": "#1f6feb", "pingora": "#8b949e", "nginx": "#57606a", "nginx+lua": "#57606a", "haproxy": "#afb8c1",
               "haproxy+tables": "#afb8c1", "envoy": "#afb8c1"}
    for result in results:
        if result["figure"] != "per_second":
            continue
        rows.append(f'<text x="10" y="{y + 14}" class="work">{result["work"]}, per second</text>')
        y += 22
        top = max(median["per_second"] for median in result["median"].values())
        for proxy, median in result["median"].items():
            value = median["per_second"]
            rows.append(f'<text x="10" y="{y + 12}">{proxy}</text>'
                        f'<rect x="110" y="{y}" width="{value / top * 480:.0f}" height="15" fill="{colours[proxy]}"/>'
                        f'<text x="{116 + value / top * 480:.0f}" y="{y + 12}">{value:,.0f}</text>')
            y += 19
        y += 10
    style = "text{font:12px sans-serif;fill:#24292f}.work{font-weight:bold}@media(prefers-color-scheme:dark){text{fill:#e6edf3}}"
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="680" height="{y}" role="img" '
            f'aria-label="Requests per second beside peers"><style>{style}</style>{"".join(rows)}</svg>\n')


def report(results, quota, arguments):
    about = {"commit": commit(), "rounds": arguments.rounds, "seconds": arguments.seconds, "quota": quota,
             "machine": machine(), "date": time.strftime("%Y-%m-%d"), "versions": versions()}
    with open(os.path.join(ROOT, "docs/reference/performance.json"), "w") as out:
        json.dump({**about, "results": results}, out, indent=1)
        out.write("\n")
    path = os.path.join(ROOT, "docs/reference/performance.md")
    with open(path) as page:
        text = page.read()
    said = (f"Measured {about['date']} at {about['commit']} on {about['machine']}; {about['versions']['nginx']}, "
            f"{about['versions']['haproxy'].split(' -')[0]}, {about['versions']['envoy']}; the median of "
            f"{arguments.rounds} rounds of {arguments.seconds} seconds. "
            "A figure, and beside each peer's how many times it ours is.\n\n"
            "![Requests per second beside peers](images/performance.svg)\n\n")
    text = re.sub(r"(<!-- measured -->\n).*(<!-- end -->)", lambda m: m[1] + said + table(results) + "\n" + m[2], text,
                  flags=re.DOTALL)
    with open(path, "w") as page:
        page.write(text)
    os.makedirs(os.path.join(ROOT, "docs/reference/images"), exist_ok=True)
    with open(os.path.join(ROOT, "docs/reference/images/performance.svg"), "w") as out:
        out.write(chart(results))
