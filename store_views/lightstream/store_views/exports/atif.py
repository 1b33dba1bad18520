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
from lightstream.schemas.records import RewardMatch, RewardRecord, Trajectory, TripletRecord
from lightstream.stream_processors.core.dialects import is_list, is_map, parse_json
from lightstream.stream_processors.core.messages import Conversation
from lightstream.stream_processors.core.rewards import AUTOMATIC

from .conversations import Told

__all__ = ["ATIF_VERSION", "to_atif"]

ATIF_VERSION = "ATIF-v1.7"
AGENT_VERSION = "unknown"
"""ATIF requires the agent's version; spans seldom have it."""
EXTRA = "lightstream"
"""Key of ``extra`` for data that the format has no field for."""


def to_atif(trajectory: Trajectory, told: Sequence[Told]) -> dict[str, Any]:
    """A document as plain values. ``told`` are the trajectory's conversations; a call without has an empty message."""
    said = {told_call.triplet.call_index: told_call.conversation for told_call in told}
    given = rewards_given(trajectory)
    steps = _Steps()
    for triplet in trajectory.triplets:
        conversation = said.get(triplet.call_index)
        if conversation is not None:
            steps.add_messages(conversation.messages)
        steps.add_call(triplet, conversation, given.get(triplet.call_index, []))
    names = [t.agent_name for t in trajectory.triplets if t.agent_name is not None]
    models = {t.model for t in trajectory.triplets}
    tools = next((c.tools for c in said.values() if c.tools), None)
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


class _Steps:
    """Steps in order, and which messages they hold already."""

    def __init__(self) -> None:
        self.values: list[dict[str, Any]] = []
        self._known: list[Mapping[str, Any]] = []
        self._asked: dict[str, dict[str, Any]] = {}

    def add_messages(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """The messages after those that the last call had before it; all of them where the history is another."""
        known = len(self._known)
        continues = len(messages) >= known and all(map(_same, self._known, messages))
        for message in messages[known if continues else 0 :]:
            role = message.get("role")
            if role == "tool":
                self._add_result(message)
            elif role == "assistant":  # said by nobody in this trajectory: few-shot examples, or a rewritten history
                self._add({"source": "agent", "message": _text(message.get("content")), "llm_call_count": 0})
            else:
                source = "system" if role in ("system", "developer") else "user"
                self._add({"source": source, "message": _text(message.get("content"))})
        self._known = list(messages)

    def add_call(
        self, triplet: TripletRecord, conversation: Conversation | None, rewards: Sequence[Mapping[str, Any]]
    ) -> None:
        """The step of a call, with the rewards that were given to it."""
        answer = {} if conversation is None else conversation.choice(triplet.choice_index)
        step: dict[str, Any] = {"source": "agent", "message": _text(answer.get("content")), "llm_call_count": 1}
        if triplet.end_unix_nano:
            step["timestamp"] = datetime.fromtimestamp(triplet.end_unix_nano / NANOS_PER_SECOND, UTC).isoformat()
        if triplet.model:
            step["model_name"] = triplet.model
        if isinstance(answer.get("reasoning_content"), str):
            step["reasoning_content"] = answer["reasoning_content"]
        step["metrics"] = _metrics(triplet)
        step["extra"] = {
            EXTRA: {
                "reward": triplet.reward,
                "rewards": rewards,
                "policy_version": triplet.policy_version,
                "agent_name": triplet.agent_name,
                "response_id": triplet.response_id,
                "choice_index": triplet.choice_index,
                "finish_reason": triplet.finish_reason,
            }
        }
        asked = answer.get("tool_calls")
        calls = [_tool_call(call) for call in asked if is_map(call)] if is_list(asked) else []
        if calls:
            step["tool_calls"] = calls
        self._add(step)
        self._asked = {call["tool_call_id"]: step for call in calls}
        if answer:
            self._known.append(answer)

    def _add_result(self, message: Mapping[str, Any]) -> None:
        call_id = str(message.get("tool_call_id") or "")
        step = self._asked.get(call_id)
        content = _text(message.get("content"))
        if step is None:
            self._add({"source": "user", "message": content})
            return
        observation = step.setdefault("observation", {"results": []})
        observation["results"].append({"source_call_id": call_id, "content": content})

    def _add(self, step: dict[str, Any]) -> None:
        step["step_id"] = len(self.values) + 1
        self.values.append(step)


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


_MATCHED = (RewardMatch.LINK, RewardMatch.LOG_ORDER, RewardMatch.TRAJECTORY)


def rewards_given(trajectory: Trajectory) -> dict[int | None, list[dict[str, Any]]]:
    """Call (``None``: the whole trajectory) -> name and value of each dimension of the reward that counts.

    That is the last one with a first dimension. Automatic rewards are left out: rules make them anew.
    """
    counted: dict[int | None, tuple[str, str, int]] = {}
    for reward in trajectory.rewards:
        if reward.dimension == 0 and reward.match in _MATCHED and not reward.name.startswith(f"{AUTOMATIC}."):
            counted[reward.call_index] = _source(reward)
    given: dict[int | None, list[dict[str, Any]]] = {}
    for reward in trajectory.rewards:
        if counted.get(reward.call_index) == _source(reward) and reward.match in _MATCHED:
            given.setdefault(reward.call_index, []).append({"name": reward.name, "value": reward.value})
    return given


def _source(reward: RewardRecord) -> tuple[str, str, int]:
    return reward.trace_id, reward.span_id, reward.source_offset
