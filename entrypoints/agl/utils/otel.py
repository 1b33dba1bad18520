"""``agentlightning.utils.otel``: attributes of spans, made and read."""

from __future__ import annotations

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from lightstream.producers.attributes import (
    check_attributes_sanity,
    extract_links_from_attributes,
    extract_tags_from_attributes,
    filter_and_unflatten_attributes,
    filter_attributes,
    flatten_attributes,
    format_exception_attributes,
    full_qualified_name,
    make_link_attributes,
    make_tag_attributes,
    query_linked_spans,
    sanitize_attribute_value,
    sanitize_attributes,
    sanitize_list_attribute_sanity,
    unflatten_attributes,
)
from lightstream.producers.tracer import active_provider
from lightstream.producers.tracer.sdk_spans import INSTRUMENTATION_NAME

__all__ = [
    "check_attributes_sanity",
    "extract_links_from_attributes",
    "extract_tags_from_attributes",
    "filter_and_unflatten_attributes",
    "filter_attributes",
    "flatten_attributes",
    "format_exception_attributes",
    "full_qualified_name",
    "get_tracer",
    "get_tracer_provider",
    "make_link_attributes",
    "make_tag_attributes",
    "query_linked_spans",
    "sanitize_attribute_value",
    "sanitize_attributes",
    "sanitize_list_attribute_sanity",
    "unflatten_attributes",
]


def get_tracer_provider(inspect: bool = True) -> TracerProvider:
    """The process's OpenTelemetry provider, which brings spans to their attempts.

    Args:
        inspect: has no effect.

    Raises:
        RuntimeError: no tracer was set up in this process.
    """
    provider = active_provider()
    if provider is None:
        raise RuntimeError("no tracer was set up in this process: create one first (OtelTracer())")
    return provider


def get_tracer(use_active_span_processor: bool = True) -> trace.Tracer:
    """An OpenTelemetry tracer whose spans come to their attempts.

    Args:
        use_active_span_processor: otherwise its spans are sent nowhere.

    Raises:
        RuntimeError: no tracer was set up in this process.
    """
    provider = get_tracer_provider() if use_active_span_processor else TracerProvider()
    return provider.get_tracer(INSTRUMENTATION_NAME)
