"""Nested values as flat attribute names: ``{"a": [{"b": 1}]}`` is ``a.0.b = 1``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from .. import semconv

__all__ = ["AttributeScalar", "flattened", "make_link_attributes", "make_tag_attributes"]

AttributeScalar: TypeAlias = str | bool | int | float | bytes

DEPTH_MAX = 64
"""Deeper structures are no annotation; most likely they contain themselves."""


def make_link_attributes(links: Mapping[str, str]) -> dict[str, str]:
    """Attributes that tie a reward or annotation to another span: that whose attribute ``key`` equals ``value``.

    Example:
        ``emit_reward(0.5, attributes=make_link_attributes({"gen_ai.response.id": "chatcmpl-1"}))``
    """
    attributes: dict[str, str] = {}
    for index, (key, value) in enumerate(links.items()):
        attributes[f"{semconv.AGL_LINK}.{index}.key_match"] = key
        attributes[f"{semconv.AGL_LINK}.{index}.value_match"] = value
    return attributes


def make_tag_attributes(tags: Sequence[str]) -> dict[str, str]:
    """Attributes that put tags on a span."""
    return {f"{semconv.AGL_TAG}.{index}": tag for index, tag in enumerate(tags)}


def flattened(values: Mapping[str, Any]) -> dict[str, Any]:
    """``values`` with nested mappings and lists of mappings spelled out; lists of plain values stay lists.

    Raises:
        TypeError: a value is no mapping, list, text, number, boolean or bytes; says where.
        ValueError: it is nested deeper than 64 levels.
    """
    flat: dict[str, Any] = {}
    for key, value in values.items():
        _flatten(flat, str(key), value, 0)
    return flat


def _flatten(flat: dict[str, Any], name: str, value: Any, depth: int) -> None:
    if depth > DEPTH_MAX:
        raise ValueError(f"{name[:200]}… is nested deeper than {DEPTH_MAX} levels")
    if value is None:
        return  # an attribute that is not there
    if isinstance(value, (str, bool, int, float, bytes)):
        flat[name] = value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            _flatten(flat, f"{name}.{key}", item, depth + 1)
    elif isinstance(value, Sequence):
        items = list(value)
        if _uniform(items):
            flat[name] = items
            return
        for index, item in enumerate(items):
            _flatten(flat, f"{name}.{index}", item, depth + 1)
    else:
        raise TypeError(f"the attribute {name!r} may not be a {type(value).__name__}: {value!r:.200}")


def _uniform(items: list[Any]) -> bool:
    """Whether OpenTelemetry takes these as one list: plain values of one type."""
    kinds = set(map(type, items))
    return len(kinds) <= 1 and kinds <= {str, bool, int, float}
