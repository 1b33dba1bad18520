"""Traces as files, for tests of imports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lightstream.schemas.types import Triplet
from lightstream.store_views.imports import ImportedTrace
from lightstream.stream_processors.adapters import TracerTraceToTriplet

ANY_LLM = TracerTraceToTriplet(llm_call_match=".", repair_hierarchy=False)


def saved(path: Path, *documents: Any, lines: bool = False) -> Path:
    text = "\n".join(map(json.dumps, documents)) if lines else json.dumps(documents[0])
    path.write_text(text)
    return path


def calls(trace: ImportedTrace) -> list[Triplet]:
    """Those with tokens."""
    return [t for t in ANY_LLM.adapt(trace.spans) if t.prompt["token_ids"]]


def otlp(trace_id: str, *spans: dict[str, Any]) -> dict[str, Any]:
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "agent"}}]}
    return {
        "resourceSpans": [
            {"resource": resource, "scopeSpans": [{"spans": [{"traceId": trace_id, **s} for s in spans]}]}
        ]
    }


def ids(*values: int) -> dict[str, Any]:
    return {"arrayValue": {"values": [{"intValue": str(value)} for value in values]}}


CALL = {
    "spanId": "b" * 16,
    "parentSpanId": "a" * 16,
    "name": "openai.chat.completion",
    "startTimeUnixNano": "1700000000000000000",
    "endTimeUnixNano": "1700000001500000000",
    "attributes": [
        {"key": "prompt_token_ids", "value": ids(1, 2)},
        {"key": "response_token_ids", "value": ids(3)},
        {"key": "score", "value": {"doubleValue": 0.5}},
        {"key": "nested", "value": {"kvlistValue": {"values": [{"key": "on", "value": {"boolValue": True}}]}}},
        {"key": "bad", "value": {"intValue": "many"}},
    ],
    "events": [{"name": "said", "timeUnixNano": "1700000001000000000", "attributes": []}],
    "links": [{"traceId": "c" * 32, "spanId": "d" * 16}],
    "status": {"code": 2, "message": "no"},
    "unknown": 1,
}


GENERATION = {
    "id": "5f0e9e26-6a6c-4c60-9d8b-6a3f8f1c2d3e",
    "traceId": "t-1",
    "type": "GENERATION",
    "name": "answer",
    "parentObservationId": "agent-1",
    "startTime": "2026-01-01T00:00:01Z",
    "endTime": "2026-01-01T00:00:02.500Z",
    "model": "policy",
    "input": [{"role": "user", "content": "Hi"}],
    "output": {"role": "assistant", "content": "Yo"},
}

PHOENIX: dict[str, Any] = {"name": "x", "context": {"trace_id": "e" * 32, "span_id": "f" * 16}}
LANGFUSE: dict[str, Any] = {"id": "t-1", "observations": [GENERATION]}
