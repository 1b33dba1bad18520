"""The gateway as a process: it ends in good order, and its ports outlive it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpanExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpanExporter
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from lightstream.producers.otlp.gateway.listeners import CONVENTIONAL_PORTS, HTTP, Listeners, inherited, open_listeners
from lightstream.runtime.listening import bind_listener, url_of
from lightstream.runtime.ports import free_port
from lightstream.runtime.processes import ProcessUnit, Supervisor
from lightstream.runtime.services import find
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import ServiceUnavailableError
from tests.producers.otlp.conftest import WAIT_S
from tests.producers.otlp.requests import PROTOBUF, span, trace_request
from tests.producers.support import read_spans
from tests.support.waiting import eventually

COMMAND = [sys.executable, "-m", "lightstream.cli", "gateway"]
KILLS = 3


@pytest.fixture
def supervised(settings: Settings) -> Iterator[tuple[Supervisor, Listeners]]:
    """A gateway kept running by a supervisor that holds its sockets."""
    fixed = settings.model_copy(update={"gateway_port": 0, "gateway_grpc_port": 0, "gateway_wait_s": WAIT_S})
    listeners = open_listeners(fixed)
    supervisor = Supervisor()
    supervisor.start([ProcessUnit("gateway", COMMAND, fixed, listeners=listeners.by_name())])
    yield supervisor, listeners
    supervisor.stop()
    for listener in listeners.by_name().values():
        assert listener.fileno() == -1, "closed with the gateway"


def one_span(tracer_provider: TracerProvider, name: str) -> ReadableSpan:
    made = tracer_provider.get_tracer("t").start_span(name)
    made.end()
    assert isinstance(made, ReadableSpan)
    return made


def test_what_was_acknowledged_survives_kills_under_load(
    supervised: tuple[Supervisor, Listeners], settings: Settings
) -> None:
    """Stock clients retry by themselves; what they were told is durable is in the log."""
    supervisor, listeners = supervised
    provider = TracerProvider(shutdown_on_exit=False)
    exporters: list[SpanExporter] = [
        HttpSpanExporter(f"{url_of(listeners.http)}/v1/traces", timeout=300),
        GrpcSpanExporter(url_of(listeners.grpc), timeout=300),
    ]
    acknowledged: list[set[str]] = [set(), set()]
    failed: list[str] = []
    stop = threading.Event()

    def send(number: int) -> None:
        count = 0
        while not stop.is_set():
            count += 1
            name = f"{number}-{count}"
            if exporters[number].export([one_span(provider, name)]) is SpanExportResult.SUCCESS:
                acknowledged[number].add(name)
            else:
                failed.append(name)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(KILLS):
        counts = [len(names) for names in acknowledged]
        eventually(lambda: all(len(n) > c + 5 for n, c in zip(acknowledged, counts, strict=True)), what="spans flow")  # noqa: B023  # called in this turn of the loop
        supervisor.kill("gateway")
    counts = [len(names) for names in acknowledged]
    eventually(lambda: all(len(n) > c for n, c in zip(acknowledged, counts, strict=True)), what="spans flow again")
    stop.set()
    for thread in threads:
        thread.join()
    for exporter in exporters:
        exporter.shutdown()
    records = read_spans(settings)
    names = {record.name for record in records}
    assert acknowledged[0] | acknowledged[1] <= names
    assert not failed, "no connection was refused for good"
    assert len({(record.trace_id, record.span_id) for record in records}) == len(names), "a repetition has the same ids"


def test_a_client_waits_at_the_door_while_the_gateway_is_away(
    supervised: tuple[Supervisor, Listeners], settings: Settings
) -> None:
    supervisor, listeners = supervised
    supervisor.kill("gateway")
    for listener in listeners.by_name().values():
        socket.create_connection(listener.getsockname(), timeout=10).close()
    url = f"{url_of(listeners.http)}/v1/traces"
    answer = httpx.post(url, content=trace_request(span()).SerializeToString(), headers=PROTOBUF, timeout=300)
    assert answer.status_code == 200
    assert len(read_spans(settings)) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_good_order(settings: Settings, tmp_path: Path, number: signal.Signals) -> None:
    changes = {"gateway_port": free_port(), "gateway_grpc_port": 0, "gateway_wait_s": WAIT_S}
    fixed = settings.model_copy(update=changes)
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(COMMAND, env=os.environ | fixed.to_environment(), stdout=log, stderr=log) as process,
    ):
        service = eventually(lambda: find(fixed, "gateway"))
        assert service is not None
        assert service.address == f"http://127.0.0.1:{fixed.gateway_port}"
        grpc_service = find(fixed, "gateway-grpc")
        assert grpc_service is not None
        host, port = service.address.removeprefix("http://").split(":")
        body = trace_request(span()).SerializeToString()
        with socket.create_connection((host, int(port)), timeout=300) as client:
            head = "POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\n"
            client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[:5])
            exporter = GrpcSpanExporter(grpc_service.address, timeout=300)
            assert exporter.export([one_span(TracerProvider(shutdown_on_exit=False), "g")]) is SpanExportResult.SUCCESS
            process.send_signal(number)
            client.sendall(body[5:])
            assert client.recv(1000).startswith(b"HTTP/1.1 200")
        assert process.wait(300) == 0
    assert find(fixed, "gateway") is None
    assert find(fixed, "gateway-grpc") is None
    assert {record.name for record in read_spans(settings)} == {"span 1", "g"}


def test_the_usual_ports_are_taken_where_they_are_free(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    monkeypatch.setitem(CONVENTIONAL_PORTS, HTTP, port)
    free = settings.model_copy(update={"gateway_grpc_port": 0})
    first, second = open_listeners(free), open_listeners(free)
    assert first.http.getsockname()[1] == port
    assert second.http.getsockname()[1] != port
    with pytest.raises(ServiceUnavailableError, match="LIGHTSTREAM_GATEWAY_PORT"):
        open_listeners(settings.model_copy(update={"gateway_port": port}))
    for listeners in (first, second):
        for listener in listeners.by_name().values():
            listener.close()


def test_sockets_meant_for_another_process_are_left_alone() -> None:
    given = {"LISTEN_PID": "1", "LISTEN_FDS": "2", "LISTEN_FDNAMES": "a:b"}
    assert inherited(given, os.getpid()) == {}
    assert inherited({}, os.getpid()) == {}
    with bind_listener("::1", 0, "") as listener:
        assert url_of(listener).startswith("http://[::1]:")
