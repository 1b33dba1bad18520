"""Spans as AgentOps, Weave and proxies leave them."""

from __future__ import annotations

from typing import Any

from lightstream.schemas.types import Span

TRACE = "a" * 32


def span(span_id: str, parent: str | None = None, *, at: int = 0, **fields: Any) -> Span:
    """A span of second ``at`` to ``at + 1``, unless told otherwise; its sequence id is ``at``."""
    defaults: dict[str, Any] = {
        "rollout_id": "r1",
        "attempt_id": "a1",
        "sequence_id": at,
        "trace_id": TRACE,
        "name": "step",
        "attributes": {},
        "start_time": float(at),
        "end_time": at + 1.0,
    }
    return Span.from_attributes(span_id=span_id, parent_id=parent, **(defaults | fields))


def agent(span_id: str, name: str, parent: str | None = None, *, at: int = 0, **fields: Any) -> Span:
    """A span of an agent."""
    return span(span_id, parent, at=at, name="agent", attributes={"agent.name": name}, **fields)


def call(span_id: str, parent: str | None = None, *, at: int = 0, ids: tuple[int, int] = (1, 2), **fields: Any) -> Span:
    """An LLM call with one prompt and one response token, answered as ``resp-<span id>``; ``None`` for no answer id."""
    response_id = fields.pop("response_id", f"resp-{span_id}")
    attributes: dict[str, Any] = {"prompt_token_ids": [ids[0]], "response_token_ids": [ids[1]]}
    attributes |= {} if response_id is None else {"gen_ai.response.id": response_id}
    attributes |= fields.pop("attributes", {})
    name = fields.pop("name", "openai.chat.completion")
    return span(span_id, parent, at=at, name=name, attributes=attributes, **fields)


def reward(
    span_id: str,
    value: Any,
    parent: str | None = None,
    *,
    at: int = 0,
    link: dict[str, str] | None = None,
    **fields: Any,
) -> Span:
    """A reward as ``emit_reward`` makes it."""
    attributes = {"agentlightning.reward.0.name": "primary", "agentlightning.reward.0.value": value}
    for index, (key, target) in enumerate((link or {}).items()):
        attributes[f"agentlightning.link.{index}.key_match"] = key
        attributes[f"agentlightning.link.{index}.value_match"] = target
    return span(span_id, parent, at=at, name="agentlightning.annotation", attributes=attributes, **fields)
