"""An open attempt: what is kept of its spans until it closes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lightstream.schemas.packing import TOKEN_BYTES
from lightstream.schemas.records import AttemptClosed, AttemptOpened, Drop, DropReason, LlmCall, SpanRecord, Trajectory

from ..dialects import ReadCall, agent_name, read_calls
from ..rewards import automatic_rules, encloses_reward, read_automatic, read_rewards
from ._checks import check
from ._fingerprint import fingerprint
from ._finish import finish
from ._held import Held
from ._observation import Observation
from ._rules import AssemblyRules
from ._said import said_in
from ._tree import Node, SpanKey, TokenData

__all__ = ["OpenAttempt"]

CALL_OVERHEAD_BYTES = 256
"""Ids, names and numbers of a triplet or drop besides its token data, generously."""
DETAIL_CHARS_MAX = 500
"""Of the text that says why a call failed, or what is wrong with it: servers answer with whole pages."""
NO_ROOM_FOR_DETAIL = "(the attempt has no room for the text)"
LINKABLE_CHARS_MAX = 256
"""Longest attribute by which a reward may link to a call: an id, not a text."""
UTF8_BYTES_MAX = 4
"""Of one character."""
LINKABLE_ATTRIBUTES_MAX = 64
"""Such attributes kept of a span; where it has more, first those that are not numbered, as messages' parts are."""


class OpenAttempt:
    """Folds the spans of one attempt. Each span costs the same, however many came before.

    Kept are token data, rewards and a few words per span; messages and other payloads are let go.
    """

    def __init__(
        self,
        opened: AttemptOpened,
        offset: int,
        rules: AssemblyRules,
        read: Callable[[SpanRecord], list[ReadCall]] = read_calls,
    ) -> None:
        self.first_offset = offset
        self.opened_unix_nano = opened.opened_unix_nano
        self._read = read
        self._rules = rules
        self._automatic = automatic_rules(rules.automatic_rewards)
        self._held = Held(opened)
        self._free_bytes = rules.trajectory_bytes_max - len(opened.rollout.input_json)

    @property
    def span_count(self) -> int:
        """Distinct spans so far."""
        return len(self._held.nodes)

    @property
    def size_bytes(self) -> int:
        """Estimated size of what is kept of calls, as ``AssemblyRules.trajectory_bytes_max`` limits it."""
        return self._rules.trajectory_bytes_max - self._free_bytes

    def add(self, span: SpanRecord, offset: int) -> bool:
        """Take a span; whether it changes anything.

        A repeated span changes nothing; one with the id of another and other content is dropped.
        """
        held = self._held
        key = (span.trace_id, span.span_id)
        content = fingerprint(span)
        known = held.nodes.get(key)
        if known is not None:
            return self._take_again(span, known, content, key, offset)
        if self._is_full(offset):
            return False
        parent = span.parent_id
        attributes = span.attributes
        node = Node((span.trace_id, parent) if parent else None, content, offset)
        node.tokens = _tokens(span.llm_call)
        node.has_times = span.start_unix_nano > 0 and span.end_unix_nano > 0
        held.nodes[key] = node
        calls = self._read(span)
        if attributes:
            node.agent_name = agent_name(span)
            node.encloses_reward = encloses_reward(span)
            if calls:
                node.attributes = _linkable(attributes)
        if attributes or span.events:
            held.rewards.extend(read_rewards(span, offset))
        if self._automatic:
            held.rewards.extend(read_automatic(self._automatic, span, offset))
        if calls:
            node.tells_of_call = True
            if len(calls) > 1:
                calls.sort(key=lambda call: call.choice_index)
            for read in calls:
                if read.failure is not None or read.detail:
                    self._shorten(read)
                if not self._has_room(read) and node.tokens is not None:
                    node.tokens = hash(node.tokens)
                observation = Observation(key, offset, read, check(read), span.start_unix_nano, span.end_unix_nano)
                if observation.by_proxy:
                    observation.said = said_in(span)
                elif observation.is_anonymous:
                    observation.said, observation.scope = said_in(span), f"{span.scope_name}/{span.name}"
                held.observations.append(observation)
        return True

    def close(self, closed: AttemptClosed, offset: int, partition: int) -> Trajectory:
        """The attempt's trajectory, from what was added. Deterministic: nothing but the records shapes it."""
        return finish(self._held, closed, self._rules, partition, self.first_offset, offset)

    def revise(self, closed: AttemptClosed, last_offset: int, partition: int, revision: int) -> Trajectory:
        """The trajectory once more, with what was added since it closed, up to ``last_offset``."""
        for observation in self._held.observations:
            observation.reset()
        return finish(self._held, closed, self._rules, partition, self.first_offset, last_offset, revision)

    @property
    def held(self) -> Held:
        """What is kept so far."""
        return self._held

    def _take_again(self, span: SpanRecord, known: Node, content: int, key: SpanKey, offset: int) -> bool:
        tokens = _tokens(span.llm_call)
        if content == known.content and known.tokens in (tokens, hash(tokens)):
            return False
        conflict = (key, hash((content, tokens)))
        if conflict in self._held.conflicts or self._is_full(offset):
            return False
        calls = self._read(span)
        self._held.conflicts[conflict] = Drop(
            span_id=key[1],
            trace_id=key[0],
            response_id=calls[0].response_id if calls else None,
            is_llm_call=bool(calls) and not known.tells_of_call,
            reason=DropReason.CONFLICTING_SPAN,
            detail=f"a span with this id and different content came first, at offset {known.offset}",
            source_offset=offset,
        )
        return True

    def _is_full(self, offset: int) -> bool:
        held = self._held
        if len(held.nodes) + len(held.conflicts) < self._rules.attempt_spans_max:
            return False
        if held.full_from_offset < 0:
            held.full_from_offset = offset
        return True

    def _shorten(self, call: ReadCall) -> None:
        """Cut the texts that say what went wrong, and count what is kept: nothing where the attempt is full."""
        for name in ("failure", "detail"):
            text: str | None = getattr(call, name)
            if text:
                kept = text[:DETAIL_CHARS_MAX]
                size = len(kept) * (1 if kept.isascii() else UTF8_BYTES_MAX)
                if size > self._free_bytes:
                    kept, size = NO_ROOM_FOR_DETAIL, 0
                self._free_bytes -= size
                setattr(call, name, kept)

    def _has_room(self, call: ReadCall) -> bool:
        """Count a call's data; where the attempt would be over its limit, let go of it."""
        response = call.response_token_ids
        if response is None and call.prompt_token_ids is None:
            self._free_bytes -= CALL_OVERHEAD_BYTES
            return True
        size = CALL_OVERHEAD_BYTES + len(call.prompt_token_ids or b"") + len(call.response_logprobs or b"")
        size += 0 if response is None else len(response) + len(response) // TOKEN_BYTES
        if size <= self._free_bytes:
            self._free_bytes -= size
            return True
        self._free_bytes -= CALL_OVERHEAD_BYTES
        call.prompt_token_ids = call.response_token_ids = call.response_logprobs = None
        call.problem = DropReason.TOO_LARGE
        limit = self._rules.trajectory_bytes_max
        call.detail = f"{size} bytes more would take the trajectory over {limit} bytes"
        return False


def _tokens(call: LlmCall | None) -> TokenData | None:
    return None if call is None else (call.prompt_token_ids, call.response_token_ids, call.response_logprobs)


def _linkable(attributes: Mapping[str, Any]) -> dict[str, str] | None:
    found = [
        (name, value if type(value) is str else str(value))
        for name, value in attributes.items()
        if type(value) is int or (type(value) is str and len(value) <= LINKABLE_CHARS_MAX)
    ]
    if len(found) > LINKABLE_ATTRIBUTES_MAX:
        found.sort(key=lambda item: any(part.isdecimal() for part in item[0].split(".")))
    return dict(found[:LINKABLE_ATTRIBUTES_MAX]) or None
