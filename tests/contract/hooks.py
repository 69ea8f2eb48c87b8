"""Hooks for schemathesis.

Names below .localhost resolve to this machine (RFC 6761). Browsers and curl do that themselves; the C library's resolver
needs a plugin that some systems lack.

The services refuse whole numbers above 2^50 that are written as floats, because parsers may round them to another integer
(chassis/src/json.rs). JSON Schema accepts such a float as an integer and cannot exclude it.
"""

import socket

import schemathesis

EXACT_MAX = 2**50

_resolve = socket.getaddrinfo


def _getaddrinfo(host, *arguments, **options):
    name = host.decode() if isinstance(host, bytes) else host
    if name and name.rstrip(".").endswith(".localhost"):
        host = "127.0.0.1"
    return _resolve(host, *arguments, **options)


socket.getaddrinfo = _getaddrinfo


def _exact(value):
    if isinstance(value, dict):
        return {name: _exact(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_exact(each) for each in value]
    too_large = isinstance(value, float) and value.is_integer() and abs(value) > EXACT_MAX
    return int(value) if too_large else value


@schemathesis.hook
def map_body(context, body):
    return _exact(body)
