"""Disjoint sets of observations: each set is one call."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from lightstream.schemas.records import DropReason

from ..dialects import ReadCall
from ._observation import Observation
from ._tree import SpanKey

__all__ = ["Groups"]


class Groups:
    """Union-find over positions of ``observations`` (path halving, the smaller root wins: near linear, iterative)."""

    def __init__(self, observations: Sequence[Observation]) -> None:
        self._observations = observations
        self._parents = list(range(len(observations)))
        self._proxy = [s.by_proxy for s in observations]
        self._response: list[tuple[str, int] | None] = [
            None if (response := s.read.response_id) is None else (response, s.read.choice_index) for s in observations
        ]
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
    return (
        not observation.by_proxy,
        not read.has_tokens or read.problem is not None or _is_faulty(observation),
        not observation.recorded,
        observation.offset,
    )


def _is_faulty(observation: Observation) -> bool:
    """Whether what it says cannot be trained on, whatever became of the call."""
    return observation.fault is not None and observation.fault[0] is not DropReason.CALL_FAILED


def _is_same_response(read: ReadCall, other: ReadCall) -> bool:
    """Whether both have response ids, the same, and the other has no problem."""
    return other.problem is None and read.response_token_ids == other.response_token_ids is not None


def _fill(call: Observation, other: Observation) -> None:
    """Take from ``other`` what the believed observation does not say: of its tokens, where it has none or the same."""
    read = call.read
    fields: list[str] = []
    untold = read.prompt_token_ids is None and read.response_token_ids is None and read.problem is None
    if untold and other.read.has_tokens and other.read.problem is None:
        fields += ["prompt_token_ids", "response_token_ids", "response_logprobs"]
    elif _is_same_response(read, other.read):
        fields += [name for name in ("prompt_token_ids", "response_logprobs") if getattr(read, name) is None]
    for name in ("response_id", "policy_version", "finish_reason"):
        if getattr(read, name) is None:
            fields.append(name)
    if not read.model:
        fields.append("model")
    if read.policy_version is None and other.read.policy_version_runs:
        fields.append("policy_version_runs")
    for name in fields:
        value = getattr(other.read, name)
        if value is not None and value != "":
            call.fill(name, value, f"{other.key[1]}:{other.read.place_of(name)}")
