"""Tools and token counts of spans, by each convention that has them."""

from __future__ import annotations

from typing import Any

import pytest

from lightstream.stream_processors.core.dialects import TokenUsage, token_usage, tool_name

from .build import framework_span

TOOLS: dict[str, tuple[str, dict[str, Any]]] = {
    "OpenTelemetry": ("execute_tool search", {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}),
    "OpenTelemetry without the name": ("execute_tool search", {"gen_ai.operation.name": "execute_tool"}),
    "OpenInference": ("call", {"openinference.span.kind": "TOOL", "tool.name": "search"}),
    "OpenInference without the name": ("search", {"openinference.span.kind": "TOOL"}),
    "OpenLLMetry": ("search.tool", {"traceloop.span.kind": "tool", "traceloop.entity.name": "search"}),
    "OpenLLMetry without the name": ("search.tool", {"traceloop.span.kind": "tool"}),
    "AgentOps": ("search", {"agentops.span.kind": "tool"}),
    "Langfuse": ("search", {"langfuse.observation.type": "tool"}),
    "LangSmith": ("search", {"langsmith.span.kind": "tool"}),
    "MLflow, whose values are JSON": ("search", {"mlflow.spanType": '"TOOL"'}),
    "Vercel": ("ai.toolCall", {"ai.operationId": "ai.toolCall", "ai.toolCall.name": "search"}),
    "MCP": ("tools/call", {"mcp.method.name": "tools/call", "gen_ai.tool.name": "search"}),
}


@pytest.mark.parametrize("convention", TOOLS)
def test_a_tools_run_is_known_with_its_name(convention: str) -> None:
    name, attributes = TOOLS[convention]
    assert tool_name(framework_span(1, attributes, name=name)) == "search"


def test_other_spans_are_no_tools() -> None:
    others: list[dict[str, Any]] = [
        {},
        {"gen_ai.operation.name": "chat", "gen_ai.tool.name": "search"},
        {"openinference.span.kind": "CHAIN"},
        {"mlflow.spanType": 5},
    ]
    assert [tool_name(framework_span(1, attributes)) for attributes in others] == [None] * 4


USAGE: dict[str, tuple[dict[str, Any], TokenUsage]] = {
    "OpenTelemetry": (
        {
            "gen_ai.usage.input_tokens": 7,
            "gen_ai.usage.cache_read.input_tokens": 5,
            "gen_ai.usage.output_tokens": 3,
        },
        TokenUsage(7, 5, 3),
    ),
    "its first names": ({"gen_ai.usage.prompt_tokens": 7, "gen_ai.usage.completion_tokens": 3}, TokenUsage(7, None, 3)),
    "OpenInference": (
        {
            "llm.token_count.prompt": 7,
            "llm.token_count.prompt_details.cache_read": 5,
            "llm.token_count.completion": 3.0,
        },
        TokenUsage(7, 5, 3),
    ),
    "Vercel": ({"ai.usage.promptTokens": 7, "ai.usage.completionTokens": 3}, TokenUsage(7, None, 3)),
    "Langfuse": ({"langfuse.observation.usage_details": '{"input": 7, "output": 3}'}, TokenUsage(7, None, 3)),
    "MLflow": ({"mlflow.chat.tokenUsage": '{"input_tokens": 7, "output_tokens": 3}'}, TokenUsage(7, None, 3)),
    "text": ({"gen_ai.usage.input_tokens": "7"}, TokenUsage(7)),
    "no counts": (
        {
            "gen_ai.usage.input_tokens": -1,
            "gen_ai.usage.output_tokens": float("nan"),
            "llm.token_count.prompt": True,
            "llm.token_count.completion": 2.5,
            "ai.usage.promptTokens": 2**70,
            "ai.usage.completionTokens": "many",
            "langfuse.observation.usage_details": "[",
        },
        TokenUsage(),
    ),
}


@pytest.mark.parametrize("convention", USAGE)
def test_token_counts_are_read(convention: str) -> None:
    attributes, expected = USAGE[convention]
    assert token_usage(attributes) == expected
