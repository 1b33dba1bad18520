"""The steps of one agent of an ATIF document: its LLM calls, each with the messages before it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lightstream.schemas.attribute_names import (
    CHOICE_INDEX,
    POLICY_VERSION,
    PROMPT_TOKEN_IDS,
    RESPONSE_LOGPROBS,
    RESPONSE_TOKEN_IDS,
)
from lightstream.schemas.types import Span

from .json_parts import as_float, map_in, maps_in
from .trace import SPAN_DIGITS, hex_id, made_span, reward_span

EXTRA = "lightstream"


@dataclass(slots=True)
class StepNames:
    """Items of a document that were read already: the ids of spans, and the responses that calls name.

    A response that is named again (some servers repeat their ids) is left out: two calls would be taken for one.
    """

    spans: set[str] = field(default_factory=set[str])
    responses: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])

    def span_id(self, path: str, step_id: object, number: int) -> str:
        """The id of a step's span, by its own id where it has one that no other has, else by its place."""
        span_id = hex_id(f"{path}:{step_id}", SPAN_DIGITS)
        if step_id is None or span_id in self.spans:
            span_id = hex_id(f"{path}:#{number}", SPAN_DIGITS)
        self.spans.add(span_id)
        return span_id

    def response_id(self, response_id: object, choice_index: int) -> str | None:
        """The id, unless the same choice of the same response was there before."""
        if not isinstance(response_id, str) or (response_id, choice_index) in self.responses:
            return None
        self.responses.add((response_id, choice_index))
        return response_id


@dataclass(slots=True)
class StepSpans:
    """Takes the steps of one agent in order.

    Attributes:
        root: span of the agent.
        path: the document's name, and which of its agents this is.
        spans: the LLM calls.
        rewards: spans with their rewards.
    """

    trace_id: str
    root: str
    path: str
    agent: Mapping[str, Any]
    names: StepNames
    spans: list[Span] = field(default_factory=list[Span])
    rewards: list[Span] = field(default_factory=list[Span])
    _of_root: list[Span] = field(default_factory=list[Span])
    _history: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def add(self, step: Mapping[str, Any], number: int, where: str) -> None:
        """Take one step.

        Raises:
            SettingsError: a part of it is of another type than the format says.
        """
        message = _message(step, where)
        if step.get("source") == "agent" and step.get("llm_call_count") != 0 and not step.get("is_copied_context"):
            self._add_call(step, number, message, where)
        self._history.append(message)
        self._history += _results(step, where)

    def add_root(self, parent: str | None) -> None:
        """Add the span of the agent, behind its calls. It names the agent, unless calls say whose they are."""
        whose: dict[str, Any] = {"agent.name": self.agent.get("name")}
        if len(self._of_root) < len(self.spans) and whose["agent.name"] is not None:
            for span in self._of_root:
                span.attributes |= whose
            whose = {}
        self.spans.append(made_span(self.trace_id, self.root, parent, "agent", whose))

    def _add_call(self, step: Mapping[str, Any], number: int, message: dict[str, Any], where: str) -> None:
        metrics = map_in(step, "metrics", where)
        ours = map_in(map_in(step, "extra", where), EXTRA, f"'extra' of {where}")
        choice = ours.get("choice_index")
        choice = choice if type(choice) is int and 0 <= choice < CHOICES_MAX else 0
        agent = self.agent
        request = {"messages": self._history, "tools": agent.get("tool_definitions")}
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": step.get("model_name") or agent.get("model_name"),
            "gen_ai.response.id": self.names.response_id(ours.get("response_id"), choice),
            "agent.name": ours.get("agent_name"),
            PROMPT_TOKEN_IDS: metrics.get("prompt_token_ids"),
            RESPONSE_TOKEN_IDS: metrics.get("completion_token_ids"),
            RESPONSE_LOGPROBS: metrics.get("logprobs"),
            "gen_ai.usage.input_tokens": metrics.get("prompt_tokens"),
            "gen_ai.usage.output_tokens": metrics.get("completion_tokens"),
            POLICY_VERSION: ours.get("policy_version"),
            CHOICE_INDEX: choice or None,
            "langfuse.observation.input": json.dumps(request),
            "langfuse.observation.output": json.dumps(message),
        }
        if ours.get("finish_reason") is not None:
            attributes["gen_ai.response.finish_reasons"] = [ours["finish_reason"]] * (choice + 1)
        span_id = self.names.span_id(self.path, step.get("step_id"), number)
        at = step.get("timestamp")
        span = made_span(self.trace_id, span_id, self.root, "chat", attributes, start=at, end=at)
        self.spans.append(span)
        if "agent_name" not in ours:
            self._of_root.append(span)
        rewards = rewards_of(ours)
        if rewards:
            self.rewards.append(reward_span(self.trace_id, rewards, span_id))


CHOICES_MAX = 1024
"""Answers of one call; a larger number is none."""


def rewards_of(ours: Mapping[str, Any]) -> list[tuple[str, float]]:
    """(name, value) of each dimension of the reward that was given to a step or trajectory; the first is the reward.

    Where a document does not tell what was given (``rewards``), it is what credit assignment made of it (``reward``).
    """
    if "rewards" not in ours:
        value = number_or_none(ours.get("reward"))
        return [] if value is None else [("reward", value)]
    rewards: list[tuple[str, float]] = []
    for item in maps_in(ours, "rewards", "'extra.lightstream'"):
        value = number_or_none(item.get("value"))
        if value is not None:
            rewards.append((str(item.get("name") or ""), value))
    return rewards


def number_or_none(value: object) -> float | None:
    """A number as such, anything else as missing."""
    return as_float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _message(step: Mapping[str, Any], where: str) -> dict[str, Any]:
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
        for call in maps_in(step, "tool_calls", where)
    ]
    if calls:
        message |= {"content": message["content"] or None, "tool_calls": calls}
    if isinstance(step.get("reasoning_content"), str) and step["reasoning_content"]:
        message["reasoning_content"] = step["reasoning_content"]
    return message


def _results(step: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    results = maps_in(map_in(step, "observation", where), "results", f"'observation' of {where}")
    return [
        {"role": "tool", "tool_call_id": result.get("source_call_id"), "content": _text(result.get("content"))}
        if result.get("source_call_id")
        else {"role": "user", "content": _text(result.get("content"))}
        for result in results
    ]


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""
