"""What schemathesis needs to know of this machine: names below .localhost are this machine, as RFC 6761 has it.

Browsers and curl know that by themselves; the C library's resolver only with a plugin that not every system has.

And what the services say of whole numbers that are written as floats: above 2^50 they are refused, because a parser may
take one for its neighbour (chassis/src/json.rs). To JSON Schema such a float is an integer, and no schema can tell.
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
