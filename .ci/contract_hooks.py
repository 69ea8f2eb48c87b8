"""What schemathesis needs to know of this machine: names below .localhost are this machine, as RFC 6761 has it.

Browsers and curl know that by themselves; the C library's resolver only with a plugin that not every system has.
"""

import socket

_resolve = socket.getaddrinfo


def _getaddrinfo(host, *arguments, **options):
    name = host.decode() if isinstance(host, bytes) else host
    if name and name.rstrip(".").endswith(".localhost"):
        host = "127.0.0.1"
    return _resolve(host, *arguments, **options)


socket.getaddrinfo = _getaddrinfo
