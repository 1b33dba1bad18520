"""A span as its maker sees it: before a store gives it an owner and a place."""

from __future__ import annotations

from typing import Protocol

from .json_model import JsonModel
from .span_parts import Attributes, TraceStatus
from .status import StatusCode

__all__ = ["SpanCoreFields", "SpanRecordingContext"]


class SpanCoreFields(JsonModel):
    """A span that was made (times in seconds since 1970).

    ``trace_id`` and ``span_id`` (lower-case hex) are those it was sent with, for links to it; empty where it was not
    sent, or where the tracer's library does not say.
    """

    name: str
    status: TraceStatus
    attributes: Attributes
    start_time: float | None
    end_time: float | None
    trace_id: str = ""
    span_id: str = ""


class SpanRecordingContext(Protocol):
    """A span that is open: what is learnt meanwhile is recorded here; who opened it ends it."""

    def record_exception(self, exception: BaseException) -> None:
        """Note an exception; the span's status becomes ``ERROR``."""
        ...

    def record_attributes(self, attributes: Attributes) -> None:
        """Add attributes, or replace those of the same name."""
        ...

    def record_status(self, status_code: StatusCode, description: str | None = None) -> None:
        """Set the status."""
        ...

    def get_recorded_span(self) -> SpanCoreFields:
        """The span so far; once it has ended, all of it.

        Raises:
            ValueError: it is not known (yet).
        """
        ...
