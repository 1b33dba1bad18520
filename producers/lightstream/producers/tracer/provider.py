"""The process's one tracer provider: an application's own where it has one, ours otherwise."""

from __future__ import annotations

import os
import threading

from opentelemetry import trace
from opentelemetry.sdk.environment_variables import OTEL_SDK_DISABLED
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider

from lightstream.schemas.errors import SettingsError

from .routing import RoutingSpanProcessor
from .sampler import AttemptSampler
from .threads import follow_threads

__all__ = ["active_provider", "install"]

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
