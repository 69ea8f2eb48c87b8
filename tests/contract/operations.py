"""Calls every operation of the orders API with every expected status. openapi-core, an independent implementation, checks
each answer against the committed description.

Unlike a fuzzer it sends requests in an order, so it gets answers that depend on earlier requests.
"""

import json
import re
from pathlib import Path

import requests
from openapi_core import Config, OpenAPI
from openapi_core.contrib.requests import RequestsOpenAPIRequest, RequestsOpenAPIResponse

import hooks  # noqa: F401  (names below .localhost are this machine)

PROBLEM = {"Accept": "application/problem+json"}

# openapi-core parses application/json; this type is JSON too.
AS_JSON = Config(extra_media_type_deserializers={"application/problem+json": json.loads})


class Operations:
    """Requests to one version of the API, and the faults of the answers."""

    def __init__(self, document: Path, base: str, ca: str, key: str):
        description = json.loads(document.read_text())
        description["servers"] = [{"url": base}]
        self.paths = description["paths"]
        self.contract = OpenAPI.from_dict(description, config=AS_JSON)
        self.base = base
        self.session = requests.Session()
        self.session.verify = ca
        self.session.headers["Authorization"] = f"Bearer {key}"
        self.seen: list[tuple[str, str, int]] = []
        self.wrong: list[str] = []

    def ask(self, method: str, path: str, status: int, *, sound: bool = True, **options) -> requests.Response:
        """Sends a request and checks the status of its answer. `sound`: the request itself matches the description."""
        request = self.session.prepare_request(requests.Request(method, self.base + path, **options))
        answer = self.session.send(request, verify=self.session.verify)
        name = f"{method} {path} -> {answer.status_code}"
        if answer.status_code != status:
            self.wrong.append(f"{name}, not {status}: {answer.text[:200]}")
        asked = RequestsOpenAPIRequest(request)
        try:
            if sound:
                self.contract.validate_request(asked)
            self.contract.validate_response(asked, RequestsOpenAPIResponse(answer))
        except Exception as error:  # noqa: BLE001  (every fault is reported)
            self.wrong.append(f"{name}: {type(error).__name__}: {error}; {error.__cause__ or ''}")
        self.seen.append((method, path, answer.status_code))
        return answer

    def without_key(self, method: str, path: str) -> None:
        """Checks that the same request without a key is refused."""
        self.ask(method, path, 401, headers={"Authorization": None}, sound=False)

    def unseen(self) -> list[str]:
        """The operations without a successful call."""
        operations = {(method.upper(), path) for path, methods in self.paths.items() for method in methods}
        for method, asked, status in self.seen:
            if status < 300:
                matches = [path for path in self.paths if re.fullmatch(re.sub(r"{[^}]+}", "[^/]+", path), asked)]
                # A fixed path wins over a path with parameters.
                operations.discard((method, min(matches, key=lambda path: path.count("{"), default="")))
        return sorted(f"{method} {path}" for method, path in operations)


def call_v1(api: Operations, pending: int, shipped: int) -> None:
    listed = api.ask("GET", "/store/orders", 200)
    api.ask("GET", "/store/orders", 304, headers={"If-None-Match": listed.headers["ETag"]})
    order = f"/store/orders/{pending}"
    api.ask("DELETE", order, 204)
    api.ask("DELETE", order, 409)
    api.ask("DELETE", order, 409, headers=PROBLEM)
    api.ask("DELETE", f"/store/orders/{shipped}", 409)
    api.ask("DELETE", "/store/orders/4711", 404)
    api.ask("GET", "/store/orders", 200, headers={"If-None-Match": listed.headers["ETag"]})
    api.ask("GET", f"/pets/{listed.json()[0]['petId']}", 200)
    api.ask("GET", "/pets/-4711", 404)
    for method, path in [("GET", "/store/orders"), ("DELETE", order), ("GET", "/pets/1")]:
        api.without_key(method, path)


def call_v2(api: Operations) -> None:
    new = {"petId": 7, "quantity": 2, "shipDate": "2027-05-01T12:00:00Z"}
    once = {"Idempotency-Key": "operations-1"}
    made = api.ask("POST", "/store/orders", 201, json=new, headers=once).json()["id"]
    again = api.ask("POST", "/store/orders", 201, json=new, headers=once)
    if (again.json()["id"], again.headers.get("Idempotency-Replayed")) != (made, "true"):
        api.wrong.append("an Idempotency-Key that was sent twice made two orders")
    api.ask("POST", "/store/orders", 409, json={**new, "quantity": 3}, headers=once)
    api.ask("POST", "/store/orders", 400, json={**new, "quantity": 0}, sound=False)
    api.ask("POST", "/store/orders", 415, data="petId=7", headers={"Content-Type": "text/plain"}, sound=False)
    api.ask("POST", "/store/orders", 413, json={**new, "note": "x" * 20_000}, sound=False)
    order = f"/store/orders/{made}"
    api.ask("GET", order, 200)
    api.ask("POST", f"{order}/ship", 200)
    api.ask("POST", f"{order}/ship", 409)
    api.ask("DELETE", order, 409, headers=PROBLEM)
    api.ask("GET", f"{order}/history", 200)
    other = api.ask("POST", "/store/orders", 201, json=new).json()["id"]
    api.ask("DELETE", f"/store/orders/{other}", 204)
    api.ask("POST", f"/store/orders/{other}/ship", 409)
    for method, path in [("GET", ""), ("DELETE", ""), ("POST", "/ship"), ("GET", "/history")]:
        api.ask(method, f"/store/orders/4711{path}", 404)
    listed = api.ask("GET", "/store/orders", 200, params={"limit": 3, "sort": "-shipDate"})
    api.ask("GET", "/store/orders", 304, headers={"If-None-Match": listed.headers["ETag"]}, params={"limit": 3})
    following = listed.json()["nextCursor"]
    api.ask("GET", "/store/orders", 200, params={"cursor": following, "limit": 3})
    filters = {"status": "cancelled", "petId": 7, "complete": "false", "shipDateFrom": "2027-01-01T00:00:00Z"}
    found = api.ask("GET", "/store/orders", 200, params=filters).json()["orders"]
    if [each["id"] for each in found] != [other]:
        api.wrong.append(f"the filters {filters} found {found}")
    api.ask("GET", "/store/orders", 400, params={"colour": "red"}, sound=False)
    api.ask("GET", "/store/orders", 400, params={"cursor": "x"}, sound=False, headers=PROBLEM)
    for method, path in [("GET", ""), ("POST", ""), ("GET", "/1"), ("DELETE", "/1"), ("POST", "/1/ship")]:
        api.without_key(method, f"/store/orders{path}")


def orders(documents: Path, host: str, ca: str, key: str, known: dict) -> list[str]:
    """Calls both versions; returns the faults."""
    wrong = []
    for name, base, way in [
        ("orders-v1.json", f"{host}/v1", lambda api: call_v1(api, known["pending"][0], known["shipped"][0])),
        ("orders-v2.json", f"{host}/v2", call_v2),
    ]:
        api = Operations(documents / name, base, ca, key)
        way(api)
        wrong += [f"{name}: {what}" for what in api.wrong]
        wrong += [f"{name}: no {method} succeeded" for method in api.unseen()]
        print(f"{name}: {len(api.seen)} answers, {len({(method, status) for method, _, status in api.seen})} kinds, {len(api.wrong)} wrong")
    return wrong
