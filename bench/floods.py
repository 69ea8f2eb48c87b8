"""Seven floods of HTTP/2, and the time that other clients wait meanwhile: run by `bench/run public-tools --only floods`."""

import contextlib
import multiprocessing
import os
import socket
import ssl
import struct
import subprocess
import time

from shared import memory, promise, stand_back

# Each flood goes on for ten seconds, in turns with as long without it: what slows the machine slows both.
TURNS = 5
SECONDS = 2
PER_SECOND = 200
# What a flood asks for, so that the upstream knows whose request it gets.
PATH = b"/flood"
# Frames that are sent at once.
AT_ONCE = 50
GROWTH_MAX = 8_000_000

DATA, HEADERS, PRIORITY, RESET, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 0, 1, 2, 3, 4, 6, 8, 9
END_STREAM, END_HEADERS = 1, 4


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


class Flood:
    """Frames without end, on connections that follow each other."""

    def __init__(self, host):
        literal = lambda index, value: bytes([index, len(value)]) + value
        address = b"\x87" + literal(4, PATH) + literal(1, host.encode())
        get, post = b"\x82" + address, b"\x83" + address
        asked = lambda stream: frame(HEADERS, END_STREAM | END_HEADERS, stream, get)
        first = lambda stream, opening: opening if stream == 1 else b""
        # What each sends for one stream more.
        self.kinds = {
            "rapid reset": lambda stream: asked(stream) + frame(RESET, 0, stream, b"\0\0\0\x08"),
            "made you reset": lambda stream: asked(stream) + frame(WINDOW_UPDATE, 0, stream, b"\0\0\0\0"),
            "PING": lambda stream: frame(PING, 0, 0, b"x" * 8),
            "SETTINGS": lambda stream: frame(SETTINGS, 0, 0),
            "empty DATA": lambda stream: first(stream, frame(HEADERS, END_HEADERS, 1, post)) + frame(DATA, 0, 1),
            "CONTINUATION": lambda stream: first(stream, frame(HEADERS, 0, 1, get)) + frame(CONTINUATION, 0, 1),
            "PRIORITY": lambda stream: frame(PRIORITY, 0, stream, b"\0\0\0\0\x10"),
        }

    def run(self, kind, gateway, host, outcome):
        """For its time; tells how many connections it had and frames it sent."""
        stand_back()
        context = ssl.create_default_context(cafile=gateway.authority)
        context.set_alpn_protocols(["h2"])
        connections = frames = 0
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            # It is thrown out again and again.
            with contextlib.suppress(OSError), \
                    socket.create_connection(("127.0.0.1", gateway.port), timeout=3) as tcp, \
                    context.wrap_socket(tcp, server_hostname=host) as tls:
                connections += 1
                tls.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0))
                stream = 1
                while time.monotonic() < until:
                    tls.sendall(b"".join(self.kinds[kind](stream + 2 * more) for more in range(AT_ONCE)))
                    stream, frames = stream + 2 * AT_ONCE, frames + AT_ONCE
        outcome.put((connections, frames))


def bystander(gateway, host, work):
    """Milliseconds that the requests of another client took, sorted, and how many were not served."""
    log = os.path.join(work, "bystander")
    with contextlib.suppress(FileNotFoundError):
        os.remove(log)
    subprocess.run(["h2load", "--connect-to", f"127.0.0.1:{gateway.port}", "-c", "1", "--rps", str(PER_SECOND),
                    "-n", str(PER_SECOND * SECONDS), "--log-file", log, f"https://{host}:{gateway.port}/"],
                   check=True, timeout=60, stdout=subprocess.DEVNULL)
    with open(log) as lines:
        answers = [line.split() for line in lines]
    return sorted(int(took) / 1000 for _, _, took in answers), sum(status != "200" for _, status, _ in answers)


def p99(took):
    return took[int(len(took) * .99)]


def attacked(gateway, flood, kind, host, other, work):
    """What `bystander` says during a flood, and what the flood was."""
    alone = multiprocessing.get_context("fork")
    outcome = alone.SimpleQueue()
    attack = alone.Process(target=flood.run, args=(kind, gateway, host, outcome))
    attack.start()
    beside = bystander(gateway, other, work)
    sent = outcome.get()
    attack.join()
    return *beside, *sent


def floods(gateway, host, other, work):
    """Floods that ask for `host`, while another client asks for `other`."""
    flood = Flood(host)
    bystander(gateway, other, work)
    before = memory(gateway.pid, "VmRSS")
    for kind in flood.kinds:
        beside, calm, failures, connections, frames = [], [], 0, 0, 0
        forwarded = gateway.upstream.floods.value
        for _ in range(TURNS):
            took, failed, opened, sent = attacked(gateway, flood, kind, host, other, work)
            beside, failures, connections, frames = beside + took, failures + failed, connections + opened, frames + sent
            calm += bystander(gateway, other, work)[0]
        forwarded = gateway.upstream.floods.value - forwarded
        beside.sort()
        calm.sort()
        print(f"{kind}: {connections} connections, {frames} frames, {forwarded} requests at the upstream; {len(beside)} requests "
              f"of another client, p50 {beside[len(beside) // 2]:.2f} ms, p99 {p99(beside):.2f} ms; without the flood "
              f"p50 {calm[len(calm) // 2]:.2f} ms, p99 {p99(calm):.2f} ms")
        promise(len(beside) == TURNS * SECONDS * PER_SECOND and not failures, f"{kind}: no other client's request fails")
        # That of a flood that begins one request, and never ends it, on each connection.
        promise(forwarded <= connections, f"{kind}: no more requests at the upstream than connections")
        promise(p99(beside) <= 2 * p99(calm), f"{kind}: others wait {p99(beside) / p99(calm):.2f} times as long, at most twice")
    grown = memory(gateway.pid, "VmRSS") - before
    promise(grown <= GROWTH_MAX, f"floods: {grown / 1e6:+.1f} MB in memory, at most {GROWTH_MAX / 1e6:.0f}")
