"""What the reference works with."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from lightstream.schemas.records import SpanRecord

Id = tuple[str, str]
AGENT, REWARD_SCOPE = "agent.name", "agentlightning.operation.name"


@dataclass
class Observation:
    """A span that tells of a call."""

    offset: int
    span: SpanRecord
    proxy: bool
    recorded: bool
    rid: str | None
    choice: int
    prompt: list[int] | None
    response: list[int] | None
    logprobs: list[float] | None
    failed: bool
    version: int | None
    resent: int = 0

    @property
    def id(self) -> Id:
        return self.span.trace_id, self.span.span_id

    @property
    def anonymous(self) -> bool:
        return not self.recorded and self.rid is None and self.response is None

    @property
    def words(self) -> str | None:
        """What the answer says."""
        call = self.span.llm_call
        if call is not None:
            return None if call.response_json is None else json.loads(call.response_json)["content"]
        return self.span.attributes.get("llm.output_messages.0.message.content")

    def lasts_longer_than(self, other: Observation) -> bool:
        """Whether the other one lies within it in time."""
        one, two = self.span, other.span
        return one.start_unix_nano <= two.start_unix_nano and two.end_unix_nano <= one.end_unix_nano

    @property
    def content(self) -> Any:
        return None if self.response is None else (self.prompt, self.response)


@dataclass
class Expected:
    """The parts of a trajectory that are compared, as plain values."""

    triplets: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])
    drops: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])
    rewards: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])
    reward: float | None = None
    notes: dict[str, int] = field(default_factory=dict[str, int])
    span_count: int = 0


def note(result: Expected, reason: str) -> None:
    result.notes[reason] = result.notes.get(reason, 0) + 1
