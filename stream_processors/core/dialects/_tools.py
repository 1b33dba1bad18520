"""Spans of a tool's run, and the tool's name, by each convention that has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightstream.schemas.records import SpanRecord

from ._read_call import text_or_none

_KINDS = {
    "openinference.span.kind": "TOOL",
    "gen_ai.operation.name": "EXECUTE_TOOL",
    "agentops.span.kind": "TOOL",
    "traceloop.span.kind": "TOOL",
    "langfuse.observation.type": "TOOL",
    "langsmith.span.kind": "TOOL",
    "mlflow.spanType": "TOOL",
    "ai.operationId": "AI.TOOLCALL",
    "mcp.method.name": "TOOLS/CALL",
}
"""Attribute -> its value, in capitals, on the span of a tool's run. MLflow writes it as JSON, with quotes."""

_NAMES = ("gen_ai.tool.name", "tool.name", "ai.toolCall.name", "mcp.tool.name", "traceloop.entity.name")
_BEFORE, _AFTER = "execute_tool ", ".tool"
"""OpenTelemetry puts the one before the tool's name, traceloop the other behind it, where the span has that name."""


def tool_name(span: SpanRecord) -> str | None:
    """The tool whose run ``span`` is; ``None`` for any other span. A tool without a name has the span's."""
    attributes = span.attributes
    if not attributes or not _is_tool(attributes):
        return None
    found = next((name for key in _NAMES if (name := text_or_none(attributes.get(key)))), None)
    return found or span.name.removeprefix(_BEFORE).removesuffix(_AFTER) or "tool"


def _is_tool(attributes: Mapping[str, Any]) -> bool:
    return any(
        isinstance(value := attributes.get(name), str) and value.strip('"').upper() == kind
        for name, kind in _KINDS.items()
    )
