"""A tracer that keeps and sends nothing."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager

from lightstream.schemas.types import Attributes, SpanCoreFields, StatusCode, TraceStatus

from ..attributes import format_exception_attributes
from .base import Tracer


class DummySpanRecordingContext:
    """A span that stays here. See ``SpanRecordingContext``."""

    def __init__(self, name: str, attributes: Attributes | None = None, start_time: float | None = None) -> None:
        self.name = name
        self.attributes: Attributes = dict(attributes or {})
        self.start_time = start_time or time.time()
        self.end_time: float | None = None
        self.status = TraceStatus(status_code="OK")

    def record_exception(self, exception: BaseException) -> None:
        self.record_status("ERROR", str(exception))
        self.record_attributes(format_exception_attributes(exception))

    def record_attributes(self, attributes: Attributes) -> None:
        self.attributes.update(attributes)

    def record_status(self, status_code: StatusCode, description: str | None = None) -> None:
        self.status = TraceStatus(status_code=status_code, description=description)

    def finalize(self, end_time: float | None = None) -> None:
        """End it."""
        self.end_time = end_time or time.time()

    def get_recorded_span(self) -> SpanCoreFields:
        """All of it.

        Raises:
            ValueError: it has not ended.
        """
        if self.end_time is None:
            raise ValueError(f"the span {self.name!r} has not ended")
        return SpanCoreFields(
            name=self.name,
            attributes=self.attributes,
            start_time=self.start_time,
            end_time=self.end_time,
            status=self.status,
        )


class DummyTracer(Tracer):
    """Makes the fields of spans and sends nothing."""

    def create_span(
        self,
        name: str,
        attributes: Attributes | None = None,
        timestamp: float | None = None,
        status: TraceStatus | None = None,
    ) -> SpanCoreFields:
        now = time.time() if timestamp is None else timestamp
        return SpanCoreFields(
            name=name,
            attributes=attributes or {},
            start_time=now,
            end_time=now,
            status=status or TraceStatus(status_code="OK"),
        )

    @contextmanager
    def operation_context(
        self,
        name: str,
        attributes: Attributes | None = None,
        start_time: float | None = None,
        end_time: float | None = None,
    ) -> Generator[DummySpanRecordingContext]:
        recording = DummySpanRecordingContext(name, attributes, start_time)
        try:
            yield recording
        except Exception as error:
            recording.record_exception(error)
            raise
        finally:
            recording.finalize(end_time)
