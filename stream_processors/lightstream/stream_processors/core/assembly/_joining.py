"""Which spans describe the same call.

Where a call went through the proxy, the proxy's record alone says that it happened; other spans only decorate it.
Elsewhere spans are joined by response id, and, without one, by nesting: a span inside another that has the same tokens,
or that has nothing of its own. Two calls that merely look alike stay two, and so do the choices of one span. A span
with neither, that lies around no other, decorates the proxy's record before it that says the same; one without words,
the only record made during it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from ._groups import Groups
from ._observation import Observation
from ._said import AnswersByWord
from ._tree import SpanKey, Tree

__all__ = ["Joined", "join"]

OUTER_CHOICES_MAX = 8
"""Choices of a surrounding span that are compared with a span inside it: bounds the work for spans of many choices."""

WITHOUT_TOKENS_MAX = 8
"""Spans of LLM kind without tokens that may lie between two that have the same."""

LOOKED_BACK_MAX = 256
"""Records before a span that are searched for the one it describes: bounds the work for many spans that say nothing."""

_ResponseKey = tuple[str, int]
_Content = tuple[bytes | None, bytes | None]


@dataclass(slots=True)
class Joined:
    """The calls of an attempt in log order, and the observations that are not calls of their own.

    Attributes:
        wrappers: LLM spans around other calls, with nothing of their own.
        unattributed: LLM spans that name no response, hold no tokens and say what no call said, where the proxy
            recorded the calls.
    """

    calls: list[Observation] = field(default_factory=list[Observation])
    wrappers: list[Observation] = field(default_factory=list[Observation])
    unattributed: list[Observation] = field(default_factory=list[Observation])


def join(observations: Sequence[Observation], tree: Tree) -> Joined:
    """Join ``observations`` (in log order) into calls. Linear but for a binary search."""
    groups = Groups(observations)
    proxy = _ProxyCalls(observations)
    others: list[int] = []
    for index, observation in enumerate(observations):
        if observation.by_proxy:
            proxy.take(index, groups)
        else:
            others.append(index)
    if not others:
        return Joined(groups.calls())
    joined = Joined()
    by_response: dict[_ResponseKey, int] = {}
    at_span: dict[SpanKey, list[int]] = {}
    for index in others:
        observation = observations[index]
        at_span.setdefault(observation.key, []).append(index)
        if proxy.claim(index, groups):
            continue
        if observation.read.response_id is not None:
            response = (observation.read.response_id, observation.read.choice_index)
            groups.union(by_response.setdefault(response, index), index)
    _join_nested(others, observations, at_span, tree, groups, joined)
    if proxy.any:
        _set_apart_unattributed(others, observations, groups, joined, proxy)
    joined.calls = groups.calls()
    return joined


class _ProxyCalls:
    """The proxy's records, by what another span may quote of them. Token data is hashed only where it decides."""

    def __init__(self, observations: Sequence[Observation]) -> None:
        self._observations = observations
        self._taken: list[int] = []
        self._by_response: dict[_ResponseKey, int | list[int]] = {}
        self._same: dict[tuple[_ResponseKey, _Content | None], int] = {}
        self._by_content: dict[_Content, list[int]] | None = None
        self._claimed: dict[_Content, int] = {}
        self._by_word: AnswersByWord | None = None
        self._times: list[tuple[int, int]] | None = None

    @property
    def any(self) -> bool:
        """Whether the proxy recorded any call."""
        return bool(self._taken)

    def take(self, index: int, groups: Groups) -> None:
        """A record with the response id *and* the tokens of an earlier one is the same call seen by two proxies."""
        observation = self._observations[index]
        read = observation.read
        if read.response_id is not None:
            response = (read.response_id, read.choice_index)
            known = self._by_response.setdefault(response, index)
            if known != index:
                if isinstance(known, int):
                    self._same[response, self._observations[known].content] = known
                    known = self._by_response[response] = [known]
                first = self._same.setdefault((response, observation.content), index)
                if first != index:
                    groups.union(first, index, both_recorded=True)
                    return
                known.append(index)
        self._taken.append(index)

    def claim(self, index: int, groups: Groups) -> bool:
        """Join another span to the record whose response id it quotes, else to one with the same tokens.

        Servers may repeat a response id: then the last record before the span is meant. Each record with the same
        tokens is claimed once, in log order, before the last one is claimed again.
        """
        observation = self._observations[index]
        read, content = observation.read, observation.content
        if read.response_id is not None:
            quoted = self._by_response.get((read.response_id, read.choice_index))
            if quoted is not None:
                records = [quoted] if isinstance(quoted, int) else quoted
                groups.union(records[max(bisect_right(records, index) - 1, 0)], index)
                return True
        if content is None or (found := self._with_content().get(content)) is None:
            return False
        turn = self._claimed.get(content, 0)
        self._claimed[content] = turn + 1
        groups.union(found[min(turn, len(found) - 1)], index)
        return True

    def claim_by_word(self, index: int, groups: Groups) -> bool:
        """Join a span that quotes no response to the record before it that says the same."""
        observation = self._observations[index]
        if observation.said is None:
            return False
        if self._by_word is None:
            self._by_word = AnswersByWord()
            for taken in self._taken:
                said = self._observations[taken].said
                if said is not None:
                    self._by_word.add(said, taken)
        record = self._by_word.take(observation.said, observation.scope, index)
        if record is None:
            return False
        groups.union(record, index)
        return True

    def claim_by_time(self, index: int, groups: Groups) -> bool:
        """Join a span that says nothing of its call to the one record made during it that no span has described.

        Clocks decide nothing but this: whom to name beside a call that is recorded anyhow.
        """
        span = self._observations[index]
        start, end = span.start_unix_nano, span.end_unix_nano
        if span.said is not None or not 0 < start <= end:
            return False
        if self._times is None:
            self._times = [
                (self._observations[i].start_unix_nano, self._observations[i].end_unix_nano) for i in self._taken
            ]
        before = bisect_left(self._taken, index)
        looked_at = slice(max(0, before - LOOKED_BACK_MAX), before)
        made = zip(self._taken[looked_at], self._times[looked_at], strict=True)
        during = (i for i, (began, ended) in made if start <= began and ended <= end and groups.is_alone(i))
        taken = next(during, None)
        if taken is None or next(during, None) is not None:
            return False
        groups.union(taken, index)
        return True

    def _with_content(self) -> dict[_Content, list[int]]:
        if self._by_content is None:
            self._by_content = {}
            for index in self._taken:
                content = self._observations[index].content
                if content is not None:
                    self._by_content.setdefault(content, []).append(index)
        return self._by_content


def _join_nested(
    others: Sequence[int],
    observations: Sequence[Observation],
    at_span: dict[SpanKey, list[int]],
    tree: Tree,
    groups: Groups,
    joined: Joined,
) -> None:
    wrapping: set[int] = set()
    only_child: dict[int, int] = {}
    for index in others:
        observation = observations[index]
        above = tree.inherited[observation.key].call_above
        for outer in _choices_around(observation, at_span.get(above, []), observations) if above is not None else ():
            around = observations[outer]
            if around.is_anonymous:
                wrapping.add(outer)
                continue
            said_again = _says_nothing_else(observation, around)
            if said_again:
                groups.union(outer, index)
            if not said_again or observation.read.is_request:  # whose response id may be another
                only_child[outer] = index if outer not in only_child else -1
        for outer in _with_tokens_around(observation, at_span, tree, observations):
            if observation.content == observations[outer].content:
                groups.union(outer, index)
    for outer, index in only_child.items():
        if index < 0:
            continue
        if observations[index].read.is_request:
            groups.union(outer, index, other_responses=True)
        elif _complement(observations[outer], observations[index]):
            groups.union(outer, index)
    for outer in sorted(wrapping):
        if groups.is_alone(outer):
            groups.remove(outer)
            joined.wrappers.append(observations[outer])


def _with_tokens_around(
    inside: Observation, at_span: dict[SpanKey, list[int]], tree: Tree, observations: Sequence[Observation]
) -> list[int]:
    """Choices of the nearest span around ``inside`` that has tokens, where spans without any lie between the two."""
    if inside.content is None:
        return []
    above = tree.inherited[inside.key].call_above
    for between in range(WITHOUT_TOKENS_MAX + 1):
        around = at_span.get(above, []) if above is not None else []
        if above is None or not around:
            return []
        if observations[around[0]].content is not None:
            return _choices_around(inside, around, observations) if between else []
        above = tree.inherited[above].call_above
    return []


def _choices_around(inside: Observation, outer: list[int], observations: Sequence[Observation]) -> list[int]:
    """Some choices of the span around, first those of the same index: only one of them takes ``inside``."""
    if len(outer) == 1:
        return outer
    index = inside.read.choice_index
    return sorted(outer[:OUTER_CHOICES_MAX], key=lambda i: observations[i].read.choice_index != index)


def _says_nothing_else(inside: Observation, around: Observation) -> bool:
    """It has the same tokens, or nothing of its own; each of several requests is a call, whatever it says."""
    if inside.is_anonymous:
        return not inside.read.is_request
    return inside.content is not None and inside.content == around.content


def _complement(around: Observation, inside: Observation) -> bool:
    """One has the response id, the other the tokens."""
    return (
        around.read.response_id is not None
        and around.content is None
        and inside.read.response_id is None
        and inside.content is not None
    )


def _set_apart_unattributed(
    others: Sequence[int], observations: Sequence[Observation], groups: Groups, joined: Joined, proxy: _ProxyCalls
) -> None:
    alone = [i for i in others if observations[i].is_anonymous and groups.is_present(i) and groups.is_alone(i)]
    wordless = [index for index in alone if not proxy.claim_by_word(index, groups)]
    for index in wordless:
        if not proxy.claim_by_time(index, groups):
            groups.remove(index)
            joined.unattributed.append(observations[index])
