"""The attempt buffer: the kept part of an open attempt's spans until it closes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lightstream.schemas.packing import TOKEN_BYTES
from lightstream.schemas.records import AttemptOpened, Drop, DropReason, LlmCall, SpanRecord

from ..dialects import ReadCall, agent_name, read_calls
from ..rewards import RewardReading, automatic_rules, encloses_reward, read_automatic, read_rewards
from ._calls import Observation
from ._fingerprints import answer_fingerprint, faults_of_conversation, span_fingerprint
from ._rules import AssemblyRules
from ._trainability import find_fault
from ._tree import Node, SpanKey, TokenData

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


class AttemptBuffer:
    """Keeps of an open attempt's spans, until it closes, token data, rewards and a few words per span.

    Messages and other payloads are let go. Each span costs the same, however many came before. All lists are in log
    order; ``nodes`` has one entry per distinct span, in log order too.

    Attributes:
        opened, first_offset: the attempt's opening record, and its offset.
        conflicts: drops of spans whose id was taken, by that id and a fingerprint of their content.
        full_from_offset: offset of the first span that was not taken, as there were too many; -1: none.
    """

    def __init__(
        self,
        opened: AttemptOpened,
        offset: int,
        rules: AssemblyRules,
        read: Callable[[SpanRecord], list[ReadCall]] = read_calls,
    ) -> None:
        self.opened = opened
        self.first_offset = offset
        self.rules = rules
        self.nodes: dict[SpanKey, Node] = {}
        self.observations: list[Observation] = []
        self.rewards: list[RewardReading] = []
        self.conflicts: dict[tuple[SpanKey, int], Drop] = {}
        self.full_from_offset = -1
        self._read = read
        self._automatic = automatic_rules(rules.automatic_rewards)
        self._images: dict[bytes, bytes] = {}
        self._free_bytes = rules.trajectory_bytes_max - len(opened.rollout.input_json)

    @property
    def span_count(self) -> int:
        """Distinct spans so far."""
        return len(self.nodes)

    @property
    def size_bytes(self) -> int:
        """Estimated size of the kept parts of calls, as ``AssemblyRules.trajectory_bytes_max`` limits it."""
        return self.rules.trajectory_bytes_max - self._free_bytes

    def add(self, span: SpanRecord, offset: int) -> bool:
        """Take a span.

        A repeated span changes nothing; one with the id of another and other content is dropped.

        Returns:
            Whether the span changes anything.
        """
        key = (span.trace_id, span.span_id)
        content = span_fingerprint(span)
        known = self.nodes.get(key)
        if known is not None:
            return self._take_again(span, known, content, key, offset)
        if self._is_full(offset):
            return False
        parent = span.parent_id
        attributes = span.attributes
        node = Node((span.trace_id, parent) if parent else None, content, offset)
        node.tokens = _tokens(span.llm_call)
        node.has_times = span.start_unix_nano > 0 and span.end_unix_nano > 0
        node.end_unix_nano = span.end_unix_nano
        self.nodes[key] = node
        calls = self._read(span)
        if attributes:
            node.agent_name = agent_name(span)
            node.encloses_reward = encloses_reward(span)
            if calls:
                node.attributes = _linkable(attributes)
        if attributes or span.events:
            self.rewards.extend(read_rewards(span, offset))
        if self._automatic:
            self.rewards.extend(read_automatic(self._automatic, span, offset))
        if calls:
            node.tells_of_call = True
            if span.llm_call is None:
                node.incomplete, node.left_out = faults_of_conversation(span)
            if len(calls) > 1:
                calls.sort(key=lambda call: call.choice_index)
            for read in calls:
                if read.failure is not None or read.detail:
                    self._shorten(read)
                if not self._has_room(read) and node.tokens is not None:
                    node.tokens = hash(node.tokens)
                observation = Observation(key, offset, read, find_fault(read), span.start_unix_nano, span.end_unix_nano)
                if observation.by_proxy:
                    observation.answer_fingerprint = answer_fingerprint(span)
                elif observation.is_anonymous:
                    observation.answer_fingerprint = answer_fingerprint(span)
                    observation.scope = f"{span.scope_name}/{span.name}"
                self.observations.append(observation)
        return True

    def _take_again(self, span: SpanRecord, known: Node, content: int, key: SpanKey, offset: int) -> bool:
        tokens = _tokens(span.llm_call)
        if content == known.content and known.tokens in (tokens, hash(tokens)):
            return False
        conflict = (key, hash((content, tokens)))
        if conflict in self.conflicts or self._is_full(offset):
            return False
        calls = self._read(span)
        self.conflicts[conflict] = Drop(
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
        if len(self.nodes) + len(self.conflicts) < self.rules.attempt_spans_max:
            return False
        if self.full_from_offset < 0:
            self.full_from_offset = offset
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
            call.images = ()
            self._free_bytes -= CALL_OVERHEAD_BYTES
            return True
        size = CALL_OVERHEAD_BYTES + len(call.prompt_token_ids or b"") + len(call.response_logprobs or b"")
        size += 0 if response is None else len(response) + len(response) // TOKEN_BYTES
        size += sum(len(image) for image in set(call.images) if image not in self._images)
        if size <= self._free_bytes:
            self._free_bytes -= size
            call.images = tuple(self._images.setdefault(image, image) for image in call.images)  # each kept once
            return True
        self._free_bytes -= CALL_OVERHEAD_BYTES
        call.prompt_token_ids = call.response_token_ids = call.response_logprobs = None
        call.images = ()
        call.problem = DropReason.TOO_LARGE
        limit = self.rules.trajectory_bytes_max
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
