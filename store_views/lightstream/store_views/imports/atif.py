"""ATIF, Harbor's Agent Trajectory Interchange Format (1.0 to 1.8): steps become spans."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lightstream.schemas.types import Span

from .trace import SPAN_DIGITS, TRACE_DIGITS, ImportedTrace, hex_id, is_map, made_span, reward_span

__all__ = ["atif_trace", "is_atif"]

EXTRA = "lightstream"


def is_atif(document: object) -> bool:
    """Whether a document says that it is ATIF."""
    return isinstance(document, dict) and str(document.get("schema_version") or "").startswith("ATIF")


def atif_trace(document: Mapping[str, Any]) -> ImportedTrace:
    """One trajectory, with those of its sub-agents below it. A step of an agent is an LLM call unless it says that it
    took none, or is there for its context only.

    Agents write their reward where they like: it is read from ``extra.lightstream.reward``, ``extra.reward`` and
    ``final_metrics.extra.reward``.
    """
    name = str(document.get("trajectory_id") or document.get("session_id") or json.dumps(document, sort_keys=True))
    trace_id = hex_id(name, TRACE_DIGITS)
    spans: list[Span] = []
    agents: list[tuple[Mapping[str, Any], str, str | None]] = [(document, name, None)]
    while agents:
        trajectory, path, parent = agents.pop()
        root = hex_id(f"{path}:agent", SPAN_DIGITS)
        spans += _calls(trajectory, path, trace_id, root)
        agent = trajectory.get("agent") or {}
        spans.append(made_span(trace_id, root, parent, "agent", {"agent.name": agent.get("name")}))
        subagents: list[Any] = trajectory.get("subagent_trajectories") or []
        agents += [(below, f"{path}/{n}", root) for n, below in enumerate(subagents) if is_map(below)]
    extra = document.get("extra") or {}
    reward = _reward(extra.get(EXTRA), extra, (document.get("final_metrics") or {}).get("extra"))
    if reward is not None:
        spans.append(reward_span(trace_id, {"reward": reward}))
    ours = extra.get(EXTRA) or {}
    task = (
        ours.get("input") if isinstance(ours, dict) and "input" in ours else {"session_id": document.get("session_id")}
    )
    return ImportedTrace(trace_id, task, spans)


def _calls(trajectory: Mapping[str, Any], name: str, trace_id: str, root: str) -> list[Span]:
    """The LLM calls of one agent, each with what was said before it."""
    agent = trajectory.get("agent") or {}
    history: list[dict[str, Any]] = []
    spans: list[Span] = []
    for step in trajectory.get("steps") or ():
        if not isinstance(step, dict):
            continue
        message = _message(step)
        if step.get("source") == "agent" and step.get("llm_call_count") != 0 and not step.get("is_copied_context"):
            spans.append(_call(name, trace_id, root, step, history, message, agent))
        history.append(message)
        history += _results(step)
    return spans


def _call(
    name: str,
    trace_id: str,
    parent: str,
    step: Mapping[str, Any],
    history: list[dict[str, Any]],
    message: dict[str, Any],
    agent: Mapping[str, Any],
) -> Span:
    metrics = step.get("metrics") or {}
    extra = (step.get("extra") or {}).get(EXTRA) or {}
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": step.get("model_name") or agent.get("model_name"),
        "lightstream.prompt_token_ids": metrics.get("prompt_token_ids"),
        "lightstream.response_token_ids": metrics.get("completion_token_ids"),
        "lightstream.response_logprobs": metrics.get("logprobs"),
        "lightstream.policy_version": extra.get("policy_version"),
        "langfuse.observation.input": json.dumps({"messages": history, "tools": agent.get("tool_definitions")}),
        "langfuse.observation.output": json.dumps(message),
    }
    span_id = hex_id(f"{name}:{step.get('step_id')}", SPAN_DIGITS)
    at = step.get("timestamp")
    return made_span(trace_id, span_id, parent, "chat", attributes, start=at, end=at)


def _message(step: Mapping[str, Any]) -> dict[str, Any]:
    roles = {"agent": "assistant", "system": "system"}
    message: dict[str, Any] = {
        "role": roles.get(str(step.get("source")), "user"),
        "content": _text(step.get("message")),
    }
    calls = [
        {
            "id": call.get("tool_call_id"),
            "type": "function",
            "function": {"name": call.get("function_name"), "arguments": json.dumps(call.get("arguments") or {})},
        }
        for call in step.get("tool_calls") or ()
    ]
    if calls:
        message |= {"content": message["content"] or None, "tool_calls": calls}
    return message


def _results(step: Mapping[str, Any]) -> list[dict[str, Any]]:
    results = (step.get("observation") or {}).get("results") or ()
    return [
        {"role": "tool", "tool_call_id": result.get("source_call_id"), "content": _text(result.get("content"))}
        if result.get("source_call_id")
        else {"role": "user", "content": _text(result.get("content"))}
        for result in results
    ]


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part.get("text") or "" for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _reward(*places: Any) -> float | None:
    for place in places:
        value = place.get("reward") if isinstance(place, dict) else None
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    return None
