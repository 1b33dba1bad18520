"""Links and tags: the spans that a reward or annotation is about, and names for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import TypeAdapter

from lightstream.schemas.types import Span, SpanLike
from lightstream.schemas.types.span import hex_span_id, hex_trace_id

from .. import semconv
from ..semconv import LinkAttributes, LinkPydanticModel
from .flat import filter_and_unflatten_attributes, flatten_attributes

SpanT = TypeVar("SpanT", bound=SpanLike)

_LINKS: TypeAdapter[list[LinkPydanticModel]] = TypeAdapter(list[LinkPydanticModel])
_TAGS: TypeAdapter[list[str]] = TypeAdapter(list[str])


def make_link_attributes(links: Mapping[str, str]) -> dict[str, Any]:
    """Attributes that tie a reward or annotation to other spans, whose attribute ``key`` equals ``value``.

    ``trace_id`` and ``span_id`` (hex) name a span itself.

    Raises:
        ValueError: a value is not a string.

    Example:
        ``emit_reward(0.5, attributes=make_link_attributes({"gen_ai.response.id": "chatcmpl-1"}))``
    """
    entries: list[dict[str, str]] = []
    for key, value in links.items():
        if not isinstance(value, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers without types
            raise ValueError(f"the link {key!r} must match a string, not {type(value).__name__}: {value!r:.200}")
        entries.append({LinkAttributes.KEY_MATCH.value: key, LinkAttributes.VALUE_MATCH.value: value})
    return flatten_attributes({semconv.AGL_LINK: entries}, expand_leaf_lists=True)


def extract_links_from_attributes(attributes: Mapping[str, Any]) -> list[LinkPydanticModel]:
    """The links that :func:`make_link_attributes` wrote, in their order; none where there are none.

    Raises:
        ValueError: the value below ``agentlightning.link`` is not a list of links.
    """
    return _LINKS.validate_python(filter_and_unflatten_attributes(attributes, semconv.AGL_LINK) or [])


def make_tag_attributes(tags: Sequence[str]) -> dict[str, Any]:
    """Attributes that put tags on a span."""
    return flatten_attributes({semconv.AGL_TAG: list(tags)}, expand_leaf_lists=True)


def extract_tags_from_attributes(attributes: Mapping[str, Any]) -> list[str]:
    """The tags that :func:`make_tag_attributes` wrote; none where there are none.

    Raises:
        ValueError: the value below ``agentlightning.tag`` is not a list of strings.
    """
    return _TAGS.validate_python(filter_and_unflatten_attributes(attributes, semconv.AGL_TAG) or [])


def query_linked_spans(spans: Sequence[SpanT], links: Sequence[LinkPydanticModel]) -> list[SpanT]:
    """The ``spans`` that match every link, in their order."""
    return [span for span in spans if all(_linked_value(span, link.key_match) == link.value_match for link in links)]


def _linked_value(span: SpanLike, key: str) -> Any:
    if key not in ("trace_id", "span_id"):
        return (span.attributes or {}).get(key)
    if isinstance(span, Span):
        return span.trace_id if key == "trace_id" else span.span_id
    context = span.get_span_context()
    if context is None:
        return None
    return hex_trace_id(context.trace_id) if key == "trace_id" else hex_span_id(context.span_id)
