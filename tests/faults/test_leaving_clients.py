"""Clients that leave in the middle of a stream, an answer or an upload: no server ends, and nobody else notices."""

from __future__ import annotations

import json
import os
import random
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import grpc
import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub

from lightstream.runtime.services import Service, discover, running_services
from lightstream.runtime.settings import Settings
from lightstream.trainers import make_tiny_model
from tests.producers.otlp.requests import PROTOBUF, span, trace_request
from tests.support.program import Program, program

SEED = int(os.environ.get("LIGHTSTREAM_TEST_SEED", random.SystemRandom().randrange(10**6)))
LEAVERS, SOAK_LEAVERS = 300, 10_000
AT_ONCE = 12
"""Clients that leave at the same time, over all servers."""

LINGER_S_MAX = 0.05
"""Longest that a client stays after what it sent and read: about when an answer of these servers begins."""

CALL_TIMEOUT_S = 120.0
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: closing sends RST instead of FIN."""

CHAT = {"model": "policy", "messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 24}
SPANS = trace_request(*(span(number) for number in range(1, 200)))
JSON = {"content-type": "application/json"}
QUERY = {"sql": "SELECT i, repeat('x', 100) AS text FROM range(5000) AS t(i)"}
ENQUEUED = {"rollouts": [{"input": "x" * 10_000}]}


@dataclass(frozen=True, slots=True)
class Target:
    """A server's port, what a client sends it, whole, and a call that has to go well."""

    name: str
    address: tuple[str, int]
    requests: list[bytes]
    call: Callable[[], object]


def _http_request(path: str, body: bytes, content_type: str = "application/json") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _posted(url: str, body: bytes, headers: dict[str, str] | None = None) -> None:
    headers = headers or {"content-type": "application/json"}
    with httpx.stream("POST", url, content=body, headers=headers, timeout=CALL_TIMEOUT_S) as answer:
        answer.read()
    assert answer.is_success, f"{answer.status_code} {answer.text[:300]}"
    if "event-stream" in answer.headers["content-type"]:
        assert answer.text.rstrip().endswith("data: [DONE]")


def _http_target(service: Service, path: str, *bodies: bytes, **headers: str) -> Target:
    where = urlsplit(service.address)
    assert where.hostname is not None
    assert where.port is not None
    requests = [_http_request(path, body, headers.get("content-type", "application/json")) for body in bodies]
    url = service.address + path

    def call() -> None:
        for body in bodies:
            _posted(url, body, headers)

    return Target(service.name, (where.hostname, where.port), requests, call)


def _grpc_target(service: Service) -> Target:
    where = urlsplit(service.address)
    assert where.hostname is not None
    assert where.port is not None
    address = (where.hostname, where.port)

    def call() -> None:
        with grpc.insecure_channel(f"{address[0]}:{address[1]}") as channel:
            stub = TraceServiceStub(channel)  # type: ignore[no-untyped-call]  # generated without types
            stub.Export(SPANS, timeout=CALL_TIMEOUT_S)

    return Target(service.name, address, [_bytes_of_grpc_call()], call)


def _bytes_of_grpc_call() -> bytes:
    """What gRPC's own client sends for a call, up to where it waits for the answer."""
    sent = b""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub = TraceServiceStub(channel)  # type: ignore[no-untyped-call]  # generated without types
            under_way = stub.Export.future(SPANS, timeout=CALL_TIMEOUT_S)
            connection, _ = listener.accept()
            with connection:
                connection.sendall(bytes((0, 0, 0, 4, 0, 0, 0, 0, 0)))  # SETTINGS, so that the client goes on
                while len(sent) < SPANS.ByteSize():
                    sent += connection.recv(65536)
            under_way.cancel()
    return sent


def _leave(target: Target, rng: random.Random) -> None:
    """Send a part of a request or all of it, read some of the answer or nothing, and go."""
    request = rng.choice(target.requests)
    uploads = rng.random() < 0.3
    part = request[: rng.randrange(len(request))] if uploads else request
    reads_bytes = 0 if uploads else rng.choice((0, 0, 1, 300, 5000))
    lingers_s = rng.choice((0.0, rng.uniform(0, LINGER_S_MAX)))
    with socket.create_connection(target.address, CALL_TIMEOUT_S) as connection:
        if rng.random() < 0.5:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        try:
            connection.sendall(part)
            if reads_bytes:
                connection.recv(reads_bytes)
            threading.Event().wait(lingers_s)  # the moment is drawn, not waited for
        except ConnectionError:
            return  # the server may refuse before it has read all


def _visit(targets: list[Target], leavers: int, seed: str) -> list[str]:
    """Let clients leave all servers while others call them; what went wrong for either."""
    wrong: list[str] = []
    over = threading.Event()
    calls: dict[str, int] = {target.name: 0 for target in targets}

    def stay(target: Target) -> None:
        while not over.is_set() or not calls[target.name]:
            try:
                target.call()
            except (AssertionError, httpx.HTTPError, grpc.RpcError) as error:
                wrong.append(f"{target.name}: {error!r}")
                return
            calls[target.name] += 1

    def leave(number: int) -> None:
        rng = random.Random(f"{seed} {number}")
        for turn in range(number, leavers, AT_ONCE):
            target = targets[turn % len(targets)]
            try:
                _leave(target, rng)
            except OSError as error:
                wrong.append(f"leaving {target.name}: {error!r}")
                return

    stayers = [threading.Thread(target=stay, args=(target,)) for target in targets]
    goers = [threading.Thread(target=leave, args=(number,)) for number in range(AT_ONCE)]
    for thread in (*stayers, *goers):
        thread.start()
    for thread in goers:
        thread.join()
    over.set()
    for thread in stayers:
        thread.join()
    print(f"calls that stayed: {calls}")
    return wrong


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Settings, list[Target], list[Program]]]:
    """Every server in a process of its own, with a broker of theirs."""
    folder: Path = tmp_path_factory.mktemp("servers")
    model = make_tiny_model(folder / "model")
    settings = Settings.load(
        data_dir=folder, kafka_bootstrap_servers=None, gateway_port=0, gateway_grpc_port=0, gateway_wait_s=60.0
    )
    with program(settings, "up", "--policy", "--checkpoint", str(model)) as up:
        up.wait_for("broker", "worker", "view", "policy", "proxy", "gateway", "gateway-grpc")
        with program(settings, "store") as store:
            store.wait_for("store")
            chats = [json.dumps(CHAT | {"stream": streamed}).encode() for streamed in (True, False)]
            yield (
                settings,
                [
                    _http_target(discover(settings, "proxy"), "/v1/chat/completions", *chats),
                    _http_target(discover(settings, "policy"), "/v1/chat/completions", *chats),
                    _http_target(
                        discover(settings, "view"),
                        "/v1/sql",
                        json.dumps(QUERY).encode(),
                        **{"content-type": "application/json"},
                    ),
                    _http_target(discover(settings, "gateway"), "/v1/traces", SPANS.SerializeToString(), **PROTOBUF),
                    _grpc_target(discover(settings, "gateway-grpc")),
                    _http_target(
                        discover(settings, "store"),
                        "/v1/agl/queues/rollouts/enqueue",
                        json.dumps(ENQUEUED).encode(),
                    ),
                ],
                [up, store],
            )


@pytest.mark.parametrize("leavers", [LEAVERS, pytest.param(SOAK_LEAVERS, marks=pytest.mark.soak)])
def test_a_client_that_leaves_ends_no_server(
    servers: tuple[Settings, list[Target], list[Program]], leavers: int
) -> None:
    settings, targets, programs = servers
    print(f"seed {SEED} (set LIGHTSTREAM_TEST_SEED to repeat)")
    before = {service.name: service.pid for service in running_services(settings)}
    wrong = _visit(targets, leavers, str(SEED))
    after = {service.name: service.pid for service in running_services(settings)}
    errors = "".join(each.errors for each in programs)
    print(errors[-10_000:])
    assert after == before, f"seed {SEED}: servers ended"
    assert not wrong, f"seed {SEED}: {wrong}"
    assert "Traceback" not in errors, f"seed {SEED}"
