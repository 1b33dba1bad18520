"""Phoenix: spans as its client gives them (``context``, ``attributes``) or as rows of its data frame; annotations."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lightstream.schemas.types import Span
from lightstream.stream_processors.core.dialects import is_map, parse_json

from .json_parts import as_float, id_in, map_in
from .trace import SPAN_DIGITS, TRACE_DIGITS, hex_id, made_span

ATTRIBUTES = "attributes."
DEPTH_MAX = 64


def is_phoenix(row: Any) -> bool:
    """Whether a row names its span as Phoenix does, or is an annotation of one."""
    return is_map(row) and ("context.trace_id" in row or is_map(row.get("context")) or is_annotation(row))


def is_annotation(row: Mapping[str, Any]) -> bool:
    """Whether a row is a span's annotation."""
    return "span_id" in row and is_map(row.get("result"))


def annotation_score(row: Mapping[str, Any]) -> tuple[str, str, float] | None:
    """Span, name and score of an annotation; ``None`` where it has only a label."""
    score = row["result"].get("score")
    if not isinstance(score, bool | int | float):
        return None
    return hex_id(row["span_id"], SPAN_DIGITS), str(row.get("name") or ""), as_float(score)


def phoenix_span(row: Mapping[str, Any]) -> Span:
    """The span of a row. Messages are nested there; here their names are spelled out, as OpenInference has them.

    Raises:
        SettingsError: it has no ids, or a part of it is of another type than Phoenix writes.
    """
    trace_id, span_id = _ids(row)
    attributes: dict[str, Any] = {}
    for name, value in _nested(row).items():
        _spell_out(attributes, name, value, 0)
    if row.get("span_kind"):
        attributes["openinference.span.kind"] = row["span_kind"]
    failed = str(row.get("status_code") or "").upper() == "ERROR"
    parent = row.get("parent_id")
    return made_span(
        hex_id(trace_id, TRACE_DIGITS),
        hex_id(span_id, SPAN_DIGITS),
        hex_id(parent, SPAN_DIGITS) if parent else None,
        str(row.get("name") or ""),
        attributes,
        start=row.get("start_time"),
        end=row.get("end_time"),
        error=str(row.get("status_message") or "") if failed else None,
    )


def _ids(row: Mapping[str, Any]) -> tuple[Any, Any]:
    """Those of the trace and the span."""
    context = map_in(row, "context", "the row")
    if context:
        return id_in(context, "trace_id", "'context'"), id_in(context, "span_id", "'context'")
    return id_in(row, "context.trace_id", "the row"), id_in(row, "context.span_id", "the row")


def _nested(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The attributes: an object, which may be JSON text, or columns of their own."""
    if not row.get("attributes"):
        return {name.removeprefix(ATTRIBUTES): value for name, value in row.items() if name.startswith(ATTRIBUTES)}
    parsed = parse_json(row["attributes"])
    return parsed if is_map(parsed) else map_in(row, "attributes", "the row")


def _spell_out(into: dict[str, Any], name: str, value: Any, depth: int) -> None:
    if depth > DEPTH_MAX:
        into[name] = json.dumps(value, default=str)
    elif isinstance(value, dict):
        for key, item in value.items():
            _spell_out(into, f"{name}.{key}", item, depth + 1)
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for index, item in enumerate(value):
            _spell_out(into, f"{name}.{index}", item, depth + 1)
    elif value is not None:
        into[name] = value
