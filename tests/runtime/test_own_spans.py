"""Spans of our own work: to a collector that the settings name, and never into our own topics."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans
from starlette.applications import Starlette

from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.services import Service, announce
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError


class Collector:
    """Takes OTLP over HTTP, as any collector does."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                collector.requests.append(gzip.decompress(body) if self.headers["content-encoding"] == "gzip" else body)
                self.send_response(200)
                self.end_headers()

            def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1/traces"
        Thread(target=self.server.serve_forever, daemon=True).start()

    def resources(self) -> list[ResourceSpans]:
        parsed = [ExportTraceServiceRequest.FromString(body) for body in self.requests]
        return [resource for request in parsed for resource in request.resource_spans]


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.server.shutdown()
    collector.server.server_close()


def requested(settings: Settings, *paths: str) -> None:
    server = HttpServer(Starlette(), settings, name="test")
    url = server.start()
    for path in paths:
        httpx.get(url + path, timeout=60)
    server.stop()


def test_each_request_is_a_span_of_a_resource_that_says_so(settings: Settings, collector: Collector) -> None:
    requested(settings.model_copy(update={"own_traces_url": collector.url}), "/one", "/two")
    resources = collector.resources()  # one a request, and there may be two
    for each in resources:
        attributes = {attribute.key: attribute.value for attribute in each.resource.attributes}
        assert attributes["service.name"].string_value == "lightstream-test"
        assert attributes["lightstream.own"].bool_value
    spans = [span for each in resources for scope in each.scope_spans for span in scope.spans]
    told = [{each.key: each.value for each in span.attributes} for span in spans]
    assert [each["url.path"].string_value for each in told] == ["/one", "/two"]
    assert {each["http.response.status_code"].int_value for each in told} == {404}
    assert all(span.end_time_unix_nano >= span.start_time_unix_nano > 0 and not span.parent_span_id for span in spans)


def test_without_an_address_nothing_is_exported(settings: Settings, collector: Collector) -> None:
    requested(settings, "/one")
    assert collector.requests == []


def test_a_collector_that_is_away_harms_nobody(settings: Settings) -> None:
    requested(settings.model_copy(update={"own_traces_url": "http://127.0.0.1:9/v1/traces"}), "/one")


def test_the_gateway_s_own_address_is_refused(settings: Settings) -> None:
    announce(settings, Service("gateway", "http://127.0.0.1:4318", 1, 0))
    with pytest.raises(SettingsError, match="own gateway"):
        HttpServer(
            Starlette(), settings.model_copy(update={"own_traces_url": "http://127.0.0.1:4318/v1/traces"}), name="t"
        )
