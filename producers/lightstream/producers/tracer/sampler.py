"""Samples every span, and puts the running attempt into the trace state of those that begin a trace of it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import Link, SpanKind, TraceState
from opentelemetry.util.types import Attributes

from lightstream.schemas.errors import RecordError

from ..context import AttemptRef, current_attempt
from ..ownership import TRACE_STATE_KEY, trace_state_value
from .running import attempt_here

__all__ = ["AttemptSampler"]

ATTEMPTS_KEPT = 1024
"""Trace states made ready; an attempt has few spans without a parent that carries it already."""


class AttemptSampler(Sampler):
    """Every span of an attempt counts, so nothing is left out.

    Child spans and the services that are called inherit the trace state, so that whatever they export, by whichever
    exporter, names the attempt. Ids too long for a trace state are left out of it.
    """

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        inherited = trace.get_current_span(parent_context).get_span_context().trace_state
        attempt = current_attempt.get()
        if attempt is None and TRACE_STATE_KEY not in inherited:  # what a parent says goes before what was handed on
            attempt = attempt_here()
        value = None if attempt is None else _value(attempt)
        if value is not None and inherited.get(TRACE_STATE_KEY) != value:
            change = inherited.update if TRACE_STATE_KEY in inherited else inherited.add
            inherited = change(TRACE_STATE_KEY, value)
        return SamplingResult(Decision.RECORD_AND_SAMPLE, attributes, inherited)

    def get_description(self) -> str:
        return type(self).__name__


@lru_cache(maxsize=ATTEMPTS_KEPT)
def _value(attempt: AttemptRef) -> str | None:
    try:
        return trace_state_value(attempt)
    except RecordError:
        return None
