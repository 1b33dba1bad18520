"""ATIF, the Agent Trajectory Interchange Format of Harbor, version 1.7: one document per trajectory.

Field names and rules: rfcs/0001-trajectory-format.md of the harbor project. Each LLM call is a step of source
``agent`` with its token ids and log-probabilities in ``metrics``; what was said before it, and is not in an earlier
step, are steps of source ``system`` or ``user``; tool results are observations of the step that asked for them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from lightstream.runtime.clock import NANOS_PER_SECOND
from lightstream.schemas.packing import TOKEN_BYTES, unpack_float32, unpack_int32
from lightstream.schemas.records import Drop, Trajectory, TripletRecord
from lightstream.stream_processors.core.dialects import is_list, is_map, parse_json
from lightstream.stream_processors.core.messages import Conversation

from .conversations import Told, calls_of_text
from .given import rewards_given

ATIF_VERSION = "ATIF-v1.7"
AGENT_VERSION = "unknown"
"""ATIF requires the agent's version; spans seldom have it."""
EXTRA = "lightstream"
"""Key of ``extra`` for data that the format has no field for."""


def to_atif(trajectory: Trajectory, texts: Sequence[Told]) -> dict[str, Any]:
    """A document as plain values: each call with token ids, and each that only lacks these.

    Args:
        texts: the trajectory's conversations. A call without has an empty message, and so has one whose conversation is
            incomplete: its step says why, in ``extra``.
    """
    by_call = {_identity(text.call): text.conversation for text in texts}
    given = rewards_given(trajectory)
    steps = _Steps()
    calls = [
        call for call in calls_of_text(trajectory) if isinstance(call, TripletRecord) or _identity(call) in by_call
    ]
    for call in calls:
        conversation = by_call.get(_identity(call))
        if conversation is not None and not conversation.incomplete:
            steps.add_messages(conversation.messages)
        rewards = given.get(call.call_index, []) if call.call_index is not None else []
        steps.add_call(call, conversation, rewards)
    names = [call.agent_name for call in calls if call.agent_name is not None]
    models = {call.model for call in calls}
    tools = next((c.tools for c in by_call.values() if c.tools), None)
    agent: dict[str, Any] = {"name": names[0] if names else "agent", "version": AGENT_VERSION}
    if len(models) == 1 and (model := models.pop()):  # else readers would take it for that of calls without one
        agent["model_name"] = model
    if tools:
        agent["tool_definitions"] = tools
    return {
        "schema_version": ATIF_VERSION,
        "session_id": trajectory.rollout_id,
        "trajectory_id": trajectory.attempt_id,
        "agent": agent,
        "steps": steps.values or [{"step_id": 1, "source": "system", "message": ""}],
        "final_metrics": {
            "total_prompt_tokens": sum(len(t.prompt_token_ids) // TOKEN_BYTES for t in trajectory.triplets),
            "total_completion_tokens": sum(len(t.response_token_ids) // TOKEN_BYTES for t in trajectory.triplets),
            "total_steps": max(len(steps.values), 1),
        },
        "extra": {
            EXTRA: {
                "reward": trajectory.reward,
                "rewards": given.get(None, []),
                "status": trajectory.status.value,
                "run_id": trajectory.run_id,
                "group_id": trajectory.group_id,
                "input": json.loads(trajectory.input_json),
                "credit": trajectory.credit,
            }
        },
    }


def _identity(call: TripletRecord | Drop) -> tuple[str, str, int, int]:
    return call.trace_id, call.span_id, call.choice_index, call.source_offset


class _Steps:
    """Steps in order, and which messages they hold already."""

    def __init__(self) -> None:
        self.values: list[dict[str, Any]] = []
        self._known: list[Mapping[str, Any]] = []
        self._tool_call_steps: dict[str, dict[str, Any]] = {}

    def add_messages(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """The messages after those that the last call had before it; all of them where the history is another."""
        known = len(self._known)
        continues = len(messages) >= known and all(map(_same, self._known, messages))
        for message in messages[known if continues else 0 :]:
            role = message.get("role")
            if role == "tool":
                self._add_result(message)
            elif role == "assistant":  # said by nobody in this trajectory: few-shot examples, or a rewritten history
                self._add_said(message)
            else:
                source = "system" if role in ("system", "developer") else "user"
                self._add({"source": source, "message": _text(message.get("content"))})
        self._known = list(messages)

    def add_call(
        self, call: TripletRecord | Drop, conversation: Conversation | None, rewards: Sequence[Mapping[str, Any]]
    ) -> None:
        """The step of a call, with the rewards that were given to it."""
        incomplete = "" if conversation is None else conversation.incomplete
        complete = None if incomplete else conversation
        before = [] if complete is None else complete.before_choice(call.choice_index)
        answer = {} if complete is None else complete.choice(call.choice_index)
        step: dict[str, Any] = {"source": "agent", "message": _text(answer.get("content")), "llm_call_count": 1}
        if isinstance(call, TripletRecord) and call.end_unix_nano:
            step["timestamp"] = datetime.fromtimestamp(call.end_unix_nano / NANOS_PER_SECOND, UTC).isoformat()
        if call.model:
            step["model_name"] = call.model
        if reasoning := _reasoning((*before, answer)):
            step["reasoning_content"] = reasoning
        extra: dict[str, Any] = {
            "reward": call.reward if isinstance(call, TripletRecord) else None,
            "rewards": rewards,
            "policy_version": call.policy_version if isinstance(call, TripletRecord) else None,
            "agent_name": call.agent_name,
            "response_id": call.response_id,
            "choice_index": call.choice_index,
            "finish_reason": call.finish_reason if isinstance(call, TripletRecord) else None,
        }
        if isinstance(call, TripletRecord):
            step["metrics"] = _metrics(call)
        if incomplete:
            extra["incomplete"] = incomplete
        choices = _other_choices(call, complete)
        if choices:
            extra["choices"] = choices
        step["extra"] = {EXTRA: extra}
        tool_calls = [_tool_call(item) for message in (*before, answer) for item in _calls_of(message)]
        if tool_calls:
            step["tool_calls"] = tool_calls
        self._add(step)
        self._tool_call_steps = {item["tool_call_id"]: step for item in tool_calls}
        for message in before:  # the model server ran these tools itself
            if message.get("role") == "tool":
                self._add_result(message)
        if answer:
            self._known += [*before, answer]

    def _add_said(self, message: Mapping[str, Any]) -> None:
        step: dict[str, Any] = {"source": "agent", "message": _text(message.get("content")), "llm_call_count": 0}
        if reasoning := _reasoning([message]):
            step["reasoning_content"] = reasoning
        tool_calls = [_tool_call(call) for call in _calls_of(message)]
        if tool_calls:
            step["tool_calls"] = tool_calls
        self._add(step)
        self._tool_call_steps = {call["tool_call_id"]: step for call in tool_calls}

    def _add_result(self, message: Mapping[str, Any]) -> None:
        call_id = str(message.get("tool_call_id") or "")
        step = self._tool_call_steps.get(call_id)
        content = _text(message.get("content"))
        if step is None:
            self._add({"source": "user", "message": content})
            return
        observation = step.setdefault("observation", {"results": []})
        observation["results"].append({"source_call_id": call_id, "content": content})

    def _add(self, step: dict[str, Any]) -> None:
        step["step_id"] = len(self.values) + 1
        self.values.append(step)


def _calls_of(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    calls = message.get("tool_calls")
    return [call for call in calls if is_map(call)] if is_list(calls) else []


def _reasoning(messages: Sequence[Mapping[str, Any]]) -> str:
    thoughts = (message.get("reasoning_content") for message in messages)
    return "\n".join(thought for thought in thoughts if isinstance(thought, str) and thought)


def _other_choices(call: TripletRecord | Drop, conversation: Conversation | None) -> list[dict[str, Any]]:
    """Further answers to a call without token ids; those with are calls of their own."""
    if conversation is None or isinstance(call, TripletRecord):
        return []
    return [answer for i, answer in enumerate(conversation.answer) if i != call.choice_index]


def _metrics(triplet: TripletRecord) -> dict[str, Any]:
    metrics: dict[str, Any] = {
        "prompt_tokens": len(triplet.prompt_token_ids) // TOKEN_BYTES,
        "completion_tokens": len(triplet.response_token_ids) // TOKEN_BYTES,
        "prompt_token_ids": unpack_int32(triplet.prompt_token_ids).tolist(),
        "completion_token_ids": unpack_int32(triplet.response_token_ids).tolist(),
    }
    if triplet.response_logprobs is not None:
        metrics["logprobs"] = unpack_float32(triplet.response_logprobs).tolist()
    return metrics


def _tool_call(call: Mapping[str, Any]) -> dict[str, Any]:
    """Reads a tool call, as far as it is complete: some name only their function, or spread it out beside the id."""
    function = call.get("function")
    inner = function if is_map(function) else {"name": function, **call}
    arguments: Any = inner.get("arguments")
    if isinstance(arguments, str):
        parsed = parse_json(arguments)
        arguments = {"text": arguments} if parsed is None else parsed
    return {
        "tool_call_id": str(call.get("id") or ""),
        "function_name": str(inner.get("name") or ""),
        "arguments": arguments if isinstance(arguments, dict) else {"value": arguments},
    }


def _same(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Whether two records of a message are the same turn: clients drop fields when they send it back."""
    return a.get("role") == b.get("role") and _text(a.get("content")) == _text(b.get("content"))


def _text(content: object) -> str:
    """Text as it is, text parts joined, anything else as JSON."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        texts = [part.get("text") for part in content if isinstance(part, Mapping)]
        if all(isinstance(text, str) for text in texts):
            return "".join(map(str, texts))
    return json.dumps(content, ensure_ascii=False)
