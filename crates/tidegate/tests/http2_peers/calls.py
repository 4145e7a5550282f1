"""gRPC through the server: calls of the four kinds, with what goes wrong in them.

First argument: `serve PORT [CERTIFICATE KEY]` answers calls, and says so; `call TARGET [CERTIFICATE]` makes them.
Messages are bytes as they are, so nothing has to be compiled.
"""

import sys
import threading
from concurrent import futures

import grpc

CANCELLED = threading.Event()


def unary(request, context):
    context.send_initial_metadata([("x-first", "1")])
    context.set_trailing_metadata([("x-last", "2"), ("x-binary-bin", bytes(range(40)))])
    return request[::-1]


def fail(request, context):
    context.abort(grpc.StatusCode.NOT_FOUND, "there is none: " + request.decode())


def collect(requests, context):
    return str(sum(len(request) for request in requests)).encode()


def repeat(request, context):
    for number in range(int(request)):
        yield number.to_bytes(4, "big") * 256


def echo(requests, context):
    for request in requests:
        yield request


def hang(request, context):
    context.add_callback(CANCELLED.set)
    yield b"begun"
    CANCELLED.wait(20)


def was_cancelled(request, context):
    return b"yes" if CANCELLED.wait(10) else b"no"


class Handlers(grpc.GenericRpcHandler):
    def service(self, details):
        return {
            "/test/Unary": grpc.unary_unary_rpc_method_handler(unary),
            "/test/Fail": grpc.unary_unary_rpc_method_handler(fail),
            "/test/Collect": grpc.stream_unary_rpc_method_handler(collect),
            "/test/Repeat": grpc.unary_stream_rpc_method_handler(repeat),
            "/test/Echo": grpc.stream_stream_rpc_method_handler(echo),
            "/test/Hang": grpc.unary_stream_rpc_method_handler(hang),
            "/test/WasCancelled": grpc.unary_unary_rpc_method_handler(was_cancelled),
        }.get(details.method)


def serve(port, *pair):
    server = grpc.server(futures.ThreadPoolExecutor(32))
    server.add_generic_rpc_handlers([Handlers()])
    address = "127.0.0.1:" + port
    if pair:
        certificate, key = (open(path, "rb").read() for path in pair)
        port = server.add_secure_port(address, grpc.ssl_server_credentials([(key, certificate)]))
    else:
        port = server.add_insecure_port(address)
    server.start()
    print(port, flush=True)
    sys.stdin.read()
    server.stop(0)


def call(target, certificate=None):
    if certificate:
        credentials = grpc.ssl_channel_credentials(open(certificate, "rb").read())
        options = [("grpc.ssl_target_name_override", "localhost")]
        channel = grpc.secure_channel(target, credentials, options)
    else:
        channel = grpc.insecure_channel(target)

    answer, made = channel.unary_unary("/test/Unary").with_call(b"abc", timeout=20)
    assert answer == b"cba"
    assert ("x-first", "1") in made.initial_metadata(), made.initial_metadata()
    last = dict(made.trailing_metadata())
    assert last["x-last"] == "2" and last["x-binary-bin"] == bytes(range(40)), last

    large = bytes(range(256)) * 12_000
    assert channel.unary_unary("/test/Unary")(large, timeout=20) == large[::-1]

    try:
        channel.unary_unary("/test/Fail")(b"this", timeout=20)
        raise AssertionError("it did not fail")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.NOT_FOUND and error.details() == "there is none: this", error
    try:
        channel.unary_unary("/test/Unknown")(b"", timeout=20)
        raise AssertionError("it did not fail")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.UNIMPLEMENTED, error

    pieces = (bytes(1000) for _ in range(3000))
    assert channel.stream_unary("/test/Collect")(pieces, timeout=20) == b"3000000"

    many = list(channel.unary_stream("/test/Repeat")(b"3000", timeout=20))
    assert many == [number.to_bytes(4, "big") * 256 for number in range(3000)]

    # Each message is answered before the next is sent.
    answered = threading.Semaphore(1)

    def questions():
        for number in range(100):
            answered.acquire()
            yield str(number).encode()

    count = 0
    for answer in channel.stream_stream("/test/Echo")(questions(), timeout=20):
        assert answer == str(count).encode(), answer
        count += 1
        answered.release()
    assert count == 100

    calls = [channel.unary_unary("/test/Unary").future(str(n).encode(), timeout=20) for n in range(300)]
    assert [made.result() for made in calls] == [str(n).encode()[::-1] for n in range(300)]

    hanging = channel.unary_stream("/test/Hang")(b"", timeout=20)
    assert next(hanging) == b"begun"
    hanging.cancel()
    assert channel.unary_unary("/test/WasCancelled")(b"", timeout=20) == b"yes"
    print("all is well")


{"serve": serve, "call": call}[sys.argv[1]](*sys.argv[2:])
