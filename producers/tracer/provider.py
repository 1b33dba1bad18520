"""The process's one tracer provider: an application's own where it has one, ours otherwise."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from functools import lru_cache

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.environment_variables import OTEL_SDK_DISABLED
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import Link, SpanKind, TraceState
from opentelemetry.util.types import Attributes

from lightstream.schemas.errors import RecordError, SettingsError

from ..attribution import TRACE_STATE_KEY, trace_state_value
from ..context import AttemptRef, current_attempt
from .routing import RoutingSpanProcessor
from .running import attempt_here
from .threads import follow_threads

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


ATTRIBUTES_MAX = 8192
"""Attributes, events and links of a span. The SDK's default of 128 silently drops messages of a long conversation."""

_lock = threading.Lock()
_installed: tuple[TracerProvider, RoutingSpanProcessor] | None = None


def install() -> tuple[TracerProvider, RoutingSpanProcessor]:
    """The process's provider, with our processor in it. The same pair however often it is called.

    Raises:
        SettingsError: the SDK is switched off by its environment variable, so every span would be lost.
    """
    global _installed
    if os.environ.get(OTEL_SDK_DISABLED, "").strip().lower() == "true":
        raise SettingsError(
            f"{OTEL_SDK_DISABLED} is 'true': OpenTelemetry would drop every span.", next_step="Unset it and try again."
        )
    with _lock:
        if _installed is None:
            provider = trace.get_tracer_provider()
            if not isinstance(provider, TracerProvider):
                provider = _new_provider()
                trace.set_tracer_provider(provider)
            processor = RoutingSpanProcessor()
            provider.add_span_processor(processor)
            follow_threads()
            _installed = provider, processor
        return _installed


def active_provider() -> TracerProvider | None:
    """The provider, if a tracer was set up in this process."""
    return None if _installed is None else _installed[0]


def _new_provider() -> TracerProvider:
    limits = SpanLimits(
        max_attributes=ATTRIBUTES_MAX,
        max_events=ATTRIBUTES_MAX,
        max_links=ATTRIBUTES_MAX,
        max_span_attributes=ATTRIBUTES_MAX,
        max_event_attributes=ATTRIBUTES_MAX,
        max_link_attributes=ATTRIBUTES_MAX,
    )
    # Every span of an attempt counts, so nothing is sampled. The exporter flushes at exit by itself.
    return TracerProvider(
        sampler=AttemptSampler(), span_limits=limits, resource=Resource.create(), shutdown_on_exit=False
    )
