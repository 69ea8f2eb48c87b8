#!/usr/bin/env python3
"""A client of the orders API in Python, with the standard library only.

    API_KEY=th_live_... examples/orders.py https://HOST[:PORT] list
    ... place PET QUANTITY      places an order, once, also if the answer was lost and the request is sent again
    ... cancel ORDER            cancels a pending order

CA_FILE names the authority to trust; for ./up it is data/ca/ca.pem.

Copy `Orders.request`: it honours `Retry-After`, otherwise backs off exponentially, and retries only safe requests.
"""

import http.client
import json
import os
import random
import socket
import ssl
import sys
import time
import urllib.parse
import uuid

# Attempts per request, the longest wait that we choose between two, and the longest Retry-After that we accept, in seconds.
ATTEMPTS_MAX = 6
BACKOFF_MAX = 30.0
PATIENCE = 120.0
TIMEOUT = 30.0

# Statuses after which the same request may succeed later: too many requests, and server errors.
WORTH_REPEATING = {429, 502, 503, 504}


class Refused(Exception):
    """The API refused a request: `code` is for programs, the message for people."""

    def __init__(self, status: int, error: dict):
        super().__init__(f"{status} {error.get('code')}: {error.get('message')}")
        self.status, self.code = status, error.get("code")


class Orders:
    """One project's orders."""

    def __init__(self, base: str, key: str, ca_file: str | None = None):
        self.url = urllib.parse.urlsplit(base)
        self.key = key
        self.tls = ssl.create_default_context(cafile=ca_file)
        self.connection: http.client.HTTPConnection | None = None

    def list(self) -> list[dict]:
        """Returns all orders. A truncated list is invalid JSON, so it raises an error."""
        return self.request("GET", "/v1/store/orders")

    def place(self, pet: int, quantity: int) -> dict:
        """Places an order. All retries send the same idempotency key, so they place it once."""
        once = {"Idempotency-Key": str(uuid.uuid4())}
        return self.request("POST", "/v2/store/orders", {"petId": pet, "quantity": quantity}, once)

    def cancel(self, order: int) -> bool:
        """Cancels a pending order. False: it is already cancelled, perhaps by an earlier attempt whose answer was lost."""
        try:
            self.request("DELETE", f"/v1/store/orders/{order}")
            return True
        except Refused as refused:
            if refused.code == "order_already_cancelled":
                return False
            raise

    def request(self, method: str, path: str, body: dict | None = None, headers: dict | None = None):
        """Sends a request, with retries. All requests here are safe to retry: reading changes nothing, a cancelled
        order stays cancelled, and placing sends an Idempotency-Key."""
        for attempt in range(1, ATTEMPTS_MAX + 1):
            last = attempt == ATTEMPTS_MAX
            try:
                status, answer_headers, text = self._send(method, path, body, headers or {})
            except (OSError, http.client.HTTPException) as error:
                self.connection = None
                if last:
                    raise
                self._wait(attempt, None, f"{type(error).__name__}: {error}")
                continue
            if status < 300:
                return json.loads(text) if text else None
            try:
                error = json.loads(text)
            except ValueError:
                error = {}
            if last or status not in WORTH_REPEATING:
                raise Refused(status, error)
            asked = answer_headers.get("Retry-After", "")
            self._wait(attempt, float(asked) if asked.isdigit() else None, f"{status} {error.get('code')}")
        raise AssertionError("the loop returns or raises")

    def _wait(self, attempt: int, asked: float | None, why: str) -> None:
        # Half of the wait is random, so that clients that were refused together do not retry together.
        wait = min(BACKOFF_MAX, 2.0 ** (attempt - 1)) * random.uniform(0.5, 1.0)
        if asked is not None:
            wait = asked + random.uniform(0.0, 0.5)  # not earlier: the gateway may ban a key that retries early
        if wait > PATIENCE:
            raise TimeoutError(f"{why}: the API asks for {wait:.0f} seconds")
        print(f"{why}; trying again in {wait:.1f} s", file=sys.stderr)
        time.sleep(wait)

    def _send(self, method: str, path: str, body: dict | None, headers: dict):
        if self.connection is None:
            self.connection = self._connect()
        headers = {"Authorization": f"Bearer {self.key}", **headers}
        if body is not None:
            headers["Content-Type"] = "application/json"
        self.connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = self.connection.getresponse()
        text = answer.read()  # raises IncompleteRead if the answer is truncated
        if answer.will_close:
            self.connection = None
        return answer.status, answer.headers, text

    def _connect(self) -> http.client.HTTPConnection:
        host, secure = self.url.hostname or "", self.url.scheme == "https"
        port = self.url.port or (443 if secure else 80)
        # Names below .localhost are this machine (RFC 6761), which some resolvers do not know.
        address = "127.0.0.1" if host.endswith(".localhost") else host
        plain = socket.create_connection((address, port), TIMEOUT)
        connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT)
        connection.sock = self.tls.wrap_socket(plain, server_hostname=host) if secure else plain
        return connection


def main(arguments: list[str]) -> int:
    match arguments:
        case [base, "list"]:
            print(json.dumps(client(base).list()))
        case [base, "place", pet, quantity]:
            print(json.dumps(client(base).place(int(pet), int(quantity))))
        case [base, "cancel", order]:
            print("cancelled" if client(base).cancel(int(order)) else "cancelled already")
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


def client(base: str) -> Orders:
    return Orders(base, os.environ["API_KEY"], os.environ.get("CA_FILE"))


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (Refused, OSError, KeyError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(1)
