"""Both ends of gRPC by grpcio: `grpc_peers.py serve` prints its port; `grpc_peers.py WORK PORT HOST KEYED_HOST ROOT` calls it
through the edge. WORK is `call` (every kind of call), or many small ones: `messages` on one stream, `calls`, or `streams`.

Messages have no descriptions: bytes are sent and received unchanged.
"""

import sys
import threading
import time
from concurrent import futures

import grpc

SERVICE = "test.Echo"


def unary(request, context):
    if request == b"fail":
        context.set_trailing_metadata((("x-why", "asked for"),))
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "as asked: ü %")
    if request == b"sleep":
        # Until the caller has gone.
        ended = threading.Event()
        context.add_callback(ended.set)
        ended.wait(60)
    said = dict(context.invocation_metadata())
    context.set_trailing_metadata((("x-sum", str(len(request))), ("x-host", said.get("x-forwarded-host", ""))))
    return request


def from_server(request, context):
    for number in range(int(request)):
        yield b"%d" % number


def from_client(requests, context):
    return b"%d" % sum(len(request) for request in requests)


def both(requests, context):
    for request in requests:
        yield request


def health(request, context):
    return b"\x08\x01"


def serve():
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=64))
    handlers = {
        "Unary": grpc.unary_unary_rpc_method_handler(unary),
        "FromServer": grpc.unary_stream_rpc_method_handler(from_server),
        "FromClient": grpc.stream_unary_rpc_method_handler(from_client),
        "Both": grpc.stream_stream_rpc_method_handler(both),
    }
    checks = {"Check": grpc.unary_unary_rpc_method_handler(health)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("grpc.health.v1.Health", checks),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    sys.stdin.read()
    server.stop(None)


def expect(code, call):
    try:
        call()
    except grpc.RpcError as error:
        assert error.code() == code, error
        return error
    raise AssertionError(f"no {code}")


def channel(port, host, root):
    credentials = grpc.ssl_channel_credentials(root)
    options = [("grpc.ssl_target_name_override", host), ("grpc.default_authority", host), ("grpc.enable_retries", 0)]
    return grpc.secure_channel(f"127.0.0.1:{port}", credentials, options)


def talk(edge, words):
    """Sends this many words on a stream, each when the one before it has come back."""
    came = threading.Semaphore(1)

    def said():
        for number in range(words):
            came.acquire()
            yield b"%d" % number

    spoken = []
    for reply in edge.stream_stream(f"/{SERVICE}/Both")(said(), timeout=200):
        spoken.append(reply)
        came.release()
    assert spoken == [b"%d" % number for number in range(words)]


def messages(port, host, _keyed, root):
    with channel(port, host, root) as edge:
        talk(edge, 2_000)


def calls(port, host, _keyed, root):
    with channel(port, host, root) as edge:
        one = edge.unary_unary(f"/{SERVICE}/Unary")
        for number in range(2_500):
            assert one(b"%d" % number, timeout=60) == b"%d" % number


def streams(port, host, _keyed, root):
    with channel(port, host, root) as edge, futures.ThreadPoolExecutor(max_workers=400) as people:
        for talked in [people.submit(talk, edge, 2) for _ in range(400)]:
            talked.result()


def call(port, host, keyed, root):
    with channel(port, host, root) as edge:
        one = edge.unary_unary(f"/{SERVICE}/Unary")
        reply, ended = one.with_call(b"text", timeout=30)
        trailers = dict(ended.trailing_metadata())
        assert (reply, trailers["x-sum"], trailers["x-host"]) == (b"text", "4", host), trailers
        large = b"x" * 3_000_000
        assert one(large, timeout=60) == large

        error = expect(grpc.StatusCode.FAILED_PRECONDITION, lambda: one(b"fail", timeout=30))
        assert error.details() == "as asked: ü %" and dict(error.trailing_metadata())["x-why"] == "asked for"
        expect(grpc.StatusCode.UNIMPLEMENTED, lambda: edge.unary_unary("/test.Echo/None")(b"", timeout=30))
        expect(grpc.StatusCode.DEADLINE_EXCEEDED, lambda: one(b"sleep", timeout=0.3))

        assert list(edge.unary_stream(f"/{SERVICE}/FromServer")(b"100", timeout=30)) == [b"%d" % n for n in range(100)]
        assert edge.stream_unary(f"/{SERVICE}/FromClient")(iter([b"ab"] * 50), timeout=30) == b"100"

        talk(edge, 20)

        waiting = one.future(b"sleep", timeout=30)
        time.sleep(0.1)
        assert waiting.cancel()

        calls = [one.future(b"%d" % number, timeout=60) for number in range(300)]
        assert [one.result() for one in calls] == [b"%d" % number for number in range(300)]
    with channel(port, keyed, root) as edge:
        error = expect(grpc.StatusCode.UNAUTHENTICATED, lambda: edge.unary_unary("/v2/orders")(b"", timeout=30))
        assert "API key" in error.details(), error


if sys.argv[1] == "serve":
    serve()
else:
    with open(sys.argv[5], "rb") as file:
        works = {"call": call, "messages": messages, "calls": calls, "streams": streams}
        works[sys.argv[1]](sys.argv[2], sys.argv[3], sys.argv[4], file.read())
