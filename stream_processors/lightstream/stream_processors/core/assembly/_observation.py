"""One span telling of one call; the one that is believed stands for the call itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lightstream.schemas.records import DropReason

from ..dialects import PROXY, RECORDED, ReadCall
from ._checks import Fault
from ._tree import SpanKey

__all__ = ["Observation"]


@dataclass(slots=True)
class Observation:
    """A call as one span describes it, and, once believed, the call with what became of it.

    Attributes:
        offset: orders observations; those of one span are told apart by their choice.
        fault: why it cannot be trained on as it is.
        said: fingerprint of the answer, of spans that may have to be joined by it.
        scope: whose span it is: instrumentation scope and span name.
        joined: the other observations of the same call.
        agent_name, in_reward: whose call it is, and whether it was made while computing a reward.
        field_sources: which fields were filled from another observation: field -> ``span id:place``.
        own: what the filled fields were before.
        reason, detail: why the call is not a triplet.
    """

    key: SpanKey
    offset: int
    read: ReadCall
    fault: Fault | None = None
    start_unix_nano: int = 0
    end_unix_nano: int = 0
    said: int | None = None
    scope: str = ""
    joined: Sequence[Observation] = ()
    agent_name: str | None = None
    in_reward: bool = False
    field_sources: dict[str, str] | None = None
    own: dict[str, Any] | None = None
    reason: DropReason | None = None
    detail: str = ""

    @property
    def recorded(self) -> bool:
        """The record itself carries the call (``llm_call``): it counts wherever LLM calls are counted."""
        return self.read.dialect in _OF_RECORD

    @property
    def by_proxy(self) -> bool:
        return self.read.dialect == PROXY

    @property
    def content(self) -> tuple[bytes | None, bytes | None] | None:
        """Prompt and response ids, ``None`` where the span has no response ids."""
        read = self.read
        return None if read.response_token_ids is None else (read.prompt_token_ids, read.response_token_ids)

    @property
    def is_anonymous(self) -> bool:
        """It names no response and has no tokens: it may belong to no call at all."""
        return not self.recorded and not self.read.names_a_call

    def filled(self, field: str, source: str) -> None:
        """Note that ``field`` was filled from elsewhere."""
        if self.field_sources is None:
            self.field_sources = {}
        self.field_sources[field] = source

    def fill(self, field: str, value: object, source: str) -> None:
        """Set ``field`` of what was read to what another observation says."""
        if self.own is None:
            self.own = {}
        self.own.setdefault(field, getattr(self.read, field))
        setattr(self.read, field, value)
        self.filled(field, source)

    def reset(self) -> None:
        """Back to what its span told, as if nothing had been joined or judged."""
        if self.own is not None:
            for field, value in self.own.items():
                setattr(self.read, field, value)
        self.own = self.field_sources = None
        self.joined = ()
        self.agent_name = self.reason = None
        self.in_reward = False
        self.detail = ""


_OF_RECORD = frozenset({PROXY, RECORDED})
