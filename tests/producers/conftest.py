"""What the producers' tests share: reading the log back, and a store in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from lightstream.producers.exporter import KafkaSpanExporter
from lightstream.producers.tracer import OtelTracer
from lightstream.runtime.settings import Settings
from lightstream.schemas.records import SpanRecord
from tests.producers.support import read_spans


@pytest.fixture(autouse=True)
def _patient_exporters(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine connects in more than the ten seconds that the end of an exporter may take."""
    monkeypatch.setattr(KafkaSpanExporter.shutdown, "__defaults__", (300.0,))


@pytest.fixture
def tracer(settings: Settings) -> Iterator[OtelTracer]:
    """A tracer that writes to this test's topics."""
    tracer = OtelTracer(settings)
    yield tracer
    tracer.close()


@pytest.fixture
def exporter(settings: Settings) -> Iterator[KafkaSpanExporter]:
    exporter = KafkaSpanExporter(settings)
    yield exporter
    exporter.shutdown()


@pytest.fixture
def spans_in_log(settings: Settings) -> Callable[[], list[SpanRecord]]:
    """Everything that this test's topic ``spans`` holds now, in log order per partition."""
    return lambda: read_spans(settings)
