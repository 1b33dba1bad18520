"""Calls: observations (each one span's description of a call), and the groups of them that are one call each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from lightstream.schemas.records import DropReason

from ..dialects import PROXY, RECORDED, ReadCall
from ._trainability import Fault
from ._tree import SpanKey

TokenIds = tuple[bytes | None, bytes | None]
"""Prompt and response ids, packed int32."""

_OF_RECORD = frozenset({PROXY, RECORDED})


@dataclass(slots=True)
class Observation:
    """A call as one span describes it, and, once that one is believed, the call with its fate.

    Attributes:
        offset: orders observations; those of one span are told apart by their choice.
        fault: why it cannot be trained on as it is.
        answer_fingerprint: hash of the answer, of spans that may have to be joined by it.
        scope: instrumentation scope and name of the span.
        joined: the other observations of the same call.
        agent_name, in_reward: the agent that made the call, and whether it was made while computing a reward.
        field_sources: which fields were filled from another observation: field -> ``span id:source``.
        own_values: what the filled fields were before.
        reason, detail: why the call is not a triplet.
    """

    key: SpanKey
    offset: int
    read: ReadCall
    fault: Fault | None = None
    start_unix_nano: int = 0
    end_unix_nano: int = 0
    answer_fingerprint: int | None = None
    scope: str = ""
    joined: Sequence[Observation] = ()
    agent_name: str | None = None
    in_reward: bool = False
    field_sources: dict[str, str] | None = None
    own_values: dict[str, Any] | None = None
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
    def token_ids(self) -> TokenIds | None:
        """Prompt and response ids, ``None`` where the span has no response ids."""
        read = self.read
        return None if read.response_token_ids is None else (read.prompt_token_ids, read.response_token_ids)

    @property
    def response(self) -> tuple[str, int] | None:
        """Response id and choice, ``None`` where the span quotes no response id."""
        read = self.read
        return None if read.response_id is None else (read.response_id, read.choice_index)

    @property
    def is_anonymous(self) -> bool:
        """It names no response and has no tokens: it may belong to no call at all."""
        return not self.recorded and not self.read.names_a_call

    def note_source(self, field: str, source: str) -> None:
        """Record from where ``field`` was filled."""
        if self.field_sources is None:
            self.field_sources = {}
        self.field_sources[field] = source

    def fill(self, field: str, value: object, source: str) -> None:
        """Set missing ``field`` to the values of another observation."""
        if self.own_values is None:
            self.own_values = {}
        self.own_values.setdefault(field, getattr(self.read, field))
        setattr(self.read, field, value)
        self.note_source(field, source)

    def reset(self) -> None:
        """Go back to the span's own description, as before joining."""
        if self.own_values is not None:
            for field, value in self.own_values.items():
                setattr(self.read, field, value)
        self.own_values = self.field_sources = None
        self.joined = ()
        self.agent_name = self.reason = None
        self.in_reward = False
        self.detail = ""


class CallGroups:
    """Disjoint sets of observations, each set one call.

    A union-find over positions of ``observations`` (path halving, the smaller root wins: near linear, iterative).
    """

    def __init__(self, observations: Sequence[Observation]) -> None:
        self._observations = observations
        self._parents = list(range(len(observations)))
        self._proxy = [observation.by_proxy for observation in observations]
        self._response = [observation.response for observation in observations]
        self._choices_of = _choices_of(observations)
        self._removed: set[int] = set()
        self._joined: set[int] = set()

    def root(self, index: int) -> int:
        """The position that stands for the set of ``index``."""
        parents = self._parents
        while parents[index] != index:
            parents[index] = parents[parents[index]]
            index = parents[index]
        return index

    def union(self, first: int, second: int, *, both_recorded: bool = False, other_responses: bool = False) -> None:
        """Make the sets of two positions one, unless that would make one call of two that are known to differ.

        Two records of the proxy are joined only where the caller says so (``both_recorded``); two sets without any
        such record are not joined when they quote different responses, or choices of one, unless the caller knows that
        these are one (``other_responses``); and no two sets are that hold choices of one span.
        """
        a, b = self.root(first), self.root(second)
        if a == b:
            return
        if self._proxy[a] and self._proxy[b] and not both_recorded:
            return
        responses = self._response[a], self._response[b]
        by_proxy = self._proxy[a] or self._proxy[b]
        if not (by_proxy or other_responses) and None not in responses and responses[0] != responses[1]:
            return
        choices = self._choices_of.get(a, _NO_SPANS), self._choices_of.get(b, _NO_SPANS)
        if not choices[0].isdisjoint(choices[1]):
            return
        a, b = min(a, b), max(a, b)
        self._parents[b] = a
        if choices[0] or choices[1]:
            fewer, more = sorted(choices, key=len)
            self._choices_of[a] = more
            more.update(fewer)
        self._proxy[a] = self._proxy[a] or self._proxy[b]
        self._response[a] = responses[0] if responses[0] is not None else responses[1]
        self._joined.update((first, second))

    def is_alone(self, index: int) -> bool:
        """Whether nothing was joined to this position."""
        return index not in self._joined

    def is_present(self, index: int) -> bool:
        """Whether the position was not removed."""
        return index not in self._removed

    def remove(self, index: int) -> None:
        """Leave a lone position out of the calls."""
        self._removed.add(index)

    def calls(self) -> list[Observation]:
        """One call per set, in log order of the observation that is believed."""
        observations = self._observations
        if not self._joined:
            return [s for i, s in enumerate(observations) if i not in self._removed]
        members: dict[int, list[Observation]] = {}
        for index, observation in enumerate(observations):
            if index not in self._removed:
                members.setdefault(self.root(index), []).append(observation)
        calls = [_believe(group) for group in members.values()]
        calls.sort(key=lambda call: (call.offset, call.read.choice_index))
        return calls


def _choices_of(observations: Sequence[Observation]) -> dict[int, set[SpanKey]]:
    """Position -> its span, of spans with several choices: these follow each other."""
    several = {one.key for one, following in pairwise(observations) if one.key == following.key}
    return {index: {observation.key} for index, observation in enumerate(observations) if observation.key in several}


_NO_SPANS: set[SpanKey] = set()
"""Never changed: of two sets the larger one takes the other's."""


def _believe(group: list[Observation]) -> Observation:
    """The proxy's record first, then one with tokens, then a recorded one, then the first in the log."""
    if len(group) == 1:
        return group[0]
    best = min(group, key=_doubt)
    best.joined = [observation for observation in group if observation is not best]
    for other in sorted(best.joined, key=_doubt):
        _fill(best, other)
    return best


def _doubt(observation: Observation) -> tuple[bool, bool, bool, int]:
    read = observation.read
    # Whatever became of the call, its tokens may be good.
    is_faulty = observation.fault is not None and observation.fault[0] is not DropReason.CALL_FAILED
    return (
        not observation.by_proxy,
        not read.has_tokens or read.problem is not None or is_faulty,
        not observation.recorded,
        observation.offset,
    )


_FILLED = ("response_id", "policy_version", "finish_reason", "resources_id", "sampling_json")


def _fill(call: Observation, other: Observation) -> None:
    """Take from ``other`` what the believed observation does not say: of its tokens, where it has none or the same."""
    read, source = call.read, other.read
    fields: list[str] = []
    has_none = read.prompt_token_ids is None and read.response_token_ids is None and read.problem is None
    if has_none and source.has_tokens and source.problem is None:
        fields += ["prompt_token_ids", "response_token_ids", "response_logprobs"]
    elif source.problem is None and read.response_token_ids == source.response_token_ids is not None:
        fields += [name for name in ("prompt_token_ids", "response_logprobs") if getattr(read, name) is None]
    fields += [name for name in _FILLED if getattr(read, name) is None]
    if not read.model:
        fields.append("model")
    if read.policy_version is None and source.policy_version_runs:
        fields.append("policy_version_runs")
    for name in fields:
        value = getattr(source, name)
        if value is not None and value != "":
            call.fill(name, value, f"{other.key[1]}:{source.source_of(name)}")
