"""A page in headless Chromium."""

import http.server
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlencode

ARGUMENTS = """
    --headless --no-sandbox --disable-gpu --disable-quic --disable-dev-shm-usage --no-first-run --disable-background-networking
    --disable-component-update --disable-sync --ignore-certificate-errors --enable-logging=stderr
""".split() + ["--host-resolver-rules=MAP *.localhost 127.0.0.1"]
# Chromium's error when a network interface of the machine appeared or disappeared.
CUT_OFF = "ERR_NETWORK_CHANGED"


def visit(page: str, given: dict, patience: float) -> dict:
    """Opens a page with these parameters, and returns the JSON that it posts to the URL in its parameter `report`."""
    deadline, log = time.monotonic() + patience, CUT_OFF
    while CUT_OFF in log and time.monotonic() < deadline:
        report, log = visit_once(page, given, deadline)
    return report if report else sys.exit(f"{page} reports nothing. Chromium:\n{log}")


def visit_once(page: str, given: dict, deadline: float) -> tuple[dict, str]:
    """Returns the report, empty if the page fails, and Chromium's log."""
    report = {}

    class Receiver(http.server.BaseHTTPRequestHandler):
        timeout = 1

        def do_POST(self):
            report.update(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response_only(204)
            self.end_headers()

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, http.server.HTTPServer(("127.0.0.1", 0), Receiver) as receiver:
        receiver.timeout = 0.5
        query = urlencode({**given, "report": f"http://127.0.0.1:{receiver.server_port}/"})
        log = Path(folder, "log")
        with log.open("w") as output:
            try:
                command = ["chromium", *ARGUMENTS, f"--user-data-dir={folder}/profile", f"{page}?{query}"]
                chromium = subprocess.Popen(command, stdout=output, stderr=output)
            except FileNotFoundError:
                sys.exit("chromium is missing: install Debian's package chromium (./check does)")

        def has_failed() -> bool:
            return chromium.poll() is not None or bool(re.search(f"{CUT_OFF}|CONSOLE.*Uncaught", log.read_text()))

        try:
            while not report and time.monotonic() < deadline and not has_failed():
                receiver.handle_request()
        finally:
            chromium.terminate()
            try:
                chromium.wait(10)
            except subprocess.TimeoutExpired:
                chromium.kill()
        return report, log.read_text()
