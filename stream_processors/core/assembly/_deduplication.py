"""Deduplication: the observations of an attempt become its calls, each once.

Several spans may describe one call: the proxy's record, a tracer's span, a framework's span around that. Where a call
went through the proxy, the proxy's record alone proves that it happened; other spans only decorate it. The rules, in
the order in which they apply:

1. :func:`join_same_proxy_call`: two records of the proxy with one response id and the same tokens passed two proxies.
2. :func:`join_resent`: the record of a request that the client sent again, and one before it with the same tokens.
3. :func:`join_by_response_id`: a span that quotes a response id describes the record of that response.
4. :func:`join_by_tokens`: a span with the tokens of a record describes that record. (A span that neither rule joins to
   a record goes by its response id once more, to the first span that quotes the same.)
5. :func:`join_nested`: a span inside another that has the same tokens, or nothing of its own, describes the same call.
6. :func:`join_by_answer_text`: a span that names no response and has no tokens describes the record before it that has
   the same answer.
7. :func:`join_by_time`: one that has no answer either describes the only record made during it.

Invariants:

- Two calls that merely look alike stay two, and so do the choices of one span (:meth:`CallGroups.union`).
- The result depends on the spans and their order in the log alone, so a replay gives the same calls.
- No span is lost: each is in a call, a wrapper, or unattributed.
- Work grows linearly with the spans, but for binary searches; constants below bound every search back.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ._calls import CallGroups, Observation, TokenIds
from ._tree import SpanKey, Tree

OUTER_CHOICES_MAX = 8
"""Choices of a surrounding span that are compared with a span inside it: bounds the work for spans of many choices."""

WITHOUT_TOKENS_MAX = 8
"""Spans of LLM kind without tokens that may lie between two that have the same."""

LOOKED_BACK_MAX = 256
"""Records before a span that are searched for the one made during it: bounds the work for many silent spans."""

_Response = tuple[str, int]
"""Response id and choice."""


@dataclass(slots=True)
class Deduplicated:
    """The calls of an attempt in log order, and the observations that are not calls of their own.

    Attributes:
        wrappers: LLM spans around other calls, with nothing of their own.
        unattributed: LLM spans that name no response, hold no tokens and have no call's answer, where the proxy
            recorded the calls.
    """

    calls: list[Observation] = field(default_factory=list[Observation])
    wrappers: list[Observation] = field(default_factory=list[Observation])
    unattributed: list[Observation] = field(default_factory=list[Observation])


def deduplicate(observations: Sequence[Observation], tree: Tree) -> Deduplicated:
    """Join ``observations`` (in log order) into calls. Linear but for binary searches."""
    groups = CallGroups(observations)
    each_once = join_same_proxy_call(observations, groups)
    records = join_resent(each_once, observations, groups)
    others = [index for index, observation in enumerate(observations) if not observation.by_proxy]
    if not others:
        return Deduplicated(groups.calls())
    indexes = Indexes(observations, tree, records, others, each_once)
    not_recorded = [
        index
        for index in others
        if not join_by_response_id(index, indexes, indexes.records_by_response, groups)
        and not join_by_tokens(index, indexes, groups)
    ]
    first_by_response: dict[_Response, list[int]] = {}
    for index in not_recorded:
        response = observations[index].response
        if response is not None:
            first_by_response.setdefault(response, [index])
            join_by_response_id(index, indexes, first_by_response, groups)
    wrappers = join_nested(indexes, groups)
    unattributed: list[int] = []
    if records:
        silent = [i for i in others if observations[i].is_anonymous and groups.is_present(i) and groups.is_alone(i)]
        silent = [index for index in silent if not join_by_answer_text(index, indexes, groups)]
        unattributed = [index for index in silent if not join_by_time(index, indexes, groups)]
        for index in unattributed:
            groups.remove(index)
    return Deduplicated(groups.calls(), [observations[i] for i in wrappers], [observations[i] for i in unattributed])


class Indexes:
    """The observations of an attempt by each rule's key; each index is built once, when it is first needed.

    All indexes hold positions of ``observations``, ascending.

    Args:
        records: the proxy's records, each call once.
        others: observations of other spans.
        quotable: ``records``, and those of the same calls whose response ids spans may quote, too.
    """

    def __init__(
        self,
        observations: Sequence[Observation],
        tree: Tree,
        records: Sequence[int],
        others: Sequence[int],
        quotable: Sequence[int],
    ) -> None:
        self.observations = observations
        self.tree = tree
        self.records = records
        self.others = others
        self.quotable = quotable
        self.taken_answers: dict[tuple[int, str], dict[int, int]] = {}
        """(answer, scope) -> positions taken in ``records_by_answer``, see :func:`_last_free`."""

    @cached_property
    def records_by_response(self) -> dict[_Response, list[int]]:
        """Servers may repeat a response id."""
        found: dict[_Response, list[int]] = {}
        for index in self.quotable:
            response = self.observations[index].response
            if response is not None:
                found.setdefault(response, []).append(index)
        return found

    @cached_property
    def records_by_tokens(self) -> dict[TokenIds, deque[int]]:
        """:func:`join_by_tokens` removes observations that are taken."""
        found: dict[TokenIds, deque[int]] = {}
        for index in self.records:
            token_ids = self.observations[index].token_ids
            if token_ids is not None:
                found.setdefault(token_ids, deque()).append(index)
        return found

    @cached_property
    def records_by_answer(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for index in self.records:
            answer = self.observations[index].answer_fingerprint
            if answer is not None:
                found.setdefault(answer, []).append(index)
        return found

    @cached_property
    def others_at_span(self) -> dict[SpanKey, list[int]]:
        """Several where a span holds several choices."""
        found: dict[SpanKey, list[int]] = {}
        for index in self.others:
            found.setdefault(self.observations[index].key, []).append(index)
        return found


def join_same_proxy_call(observations: Sequence[Observation], groups: CallGroups) -> list[int]:
    """Join the proxy's records that have the response id *and* the tokens of an earlier one: it passed two proxies.

    Returns:
        The proxy's records, each call once.
    """
    records: list[int] = []
    known: dict[_Response, list[int]] = {}
    by_tokens: dict[tuple[_Response, TokenIds | None], int] = {}
    for index, observation in enumerate(observations):
        if not observation.by_proxy:
            continue
        response = observation.response
        if response is not None:
            of_response = known.setdefault(response, [])
            if of_response:  # only then token ids are hashed, which are long
                by_tokens.setdefault((response, observations[of_response[0]].token_ids), of_response[0])
                first = by_tokens.setdefault((response, observation.token_ids), index)
                if first != index:
                    groups.union(first, index, both_recorded=True)
                    continue
            of_response.append(index)
        records.append(index)
    return records


def join_resent(records: list[int], observations: Sequence[Observation], groups: CallGroups) -> list[int]:
    """Join the record of a request that the client sent again to the last one before it with the same tokens.

    The proxy was killed between the first record and its answer: the agent has seen the second alone. Each record is
    taken once. Requests of a run with a seed have the same tokens when they are sent again; two records with different
    tokens stay two calls, because equal requests may be made at once. So do two where failed calls between them account
    for each earlier try.

    Args:
        records: the proxy's records, each once.

    Returns:
        The proxy's records, each call once.
    """
    if not any(observations[index].read.resend_count > 0 for index in records):
        return records  # so that token ids, which are long, are not hashed
    calls: list[int] = []
    failed: list[int] = []
    free: dict[tuple[TokenIds, int], list[int]] = {}
    for index in records:
        read, token_ids = observations[index].read, observations[index].token_ids
        same = [] if token_ids is None else free.setdefault((token_ids, read.choice_index), [])
        if same and len(failed) - bisect_right(failed, same[-1]) < read.resend_count:
            groups.union(same.pop(), index, both_recorded=True)
        else:
            calls.append(index)
        same.append(index)
        if read.failure is not None:
            failed.append(index)
    return calls


def join_by_response_id(
    index: int, indexes: Indexes, by_response: Mapping[_Response, Sequence[int]], groups: CallGroups
) -> bool:
    """Join a span to the record that it quotes; of several with that response id the last one before the span.

    Returns:
        Whether ``by_response`` has what it quotes.
    """
    response = indexes.observations[index].response
    quoted = None if response is None else by_response.get(response)
    if quoted is None:
        return False
    groups.union(quoted[max(bisect_right(quoted, index) - 1, 0)], index)
    return True


def join_by_tokens(index: int, indexes: Indexes, groups: CallGroups) -> bool:
    """Join a span to a record with the same tokens: each is taken once, in log order, before the last is taken again.

    Returns:
        Whether there is such a record.
    """
    token_ids = indexes.observations[index].token_ids
    same = None if token_ids is None else indexes.records_by_tokens.get(token_ids)
    if same is None:
        return False
    groups.union(same.popleft() if len(same) > 1 else same[0], index)
    return True


def join_nested(indexes: Indexes, groups: CallGroups) -> list[int]:
    """Join spans inside others: spans with the same tokens, spans with nothing of their own, the only request.

    Returns:
        The LLM spans around other calls that have nothing of their own; they are removed from the calls.
    """
    observations = indexes.observations
    wrapping: set[int] = set()
    only_child: dict[int, int] = {}
    for index in indexes.others:
        observation = observations[index]
        for outer in _choices_around(indexes, index):
            around = observations[outer]
            if around.is_anonymous:
                wrapping.add(outer)
                continue
            adds_nothing = _adds_nothing(observation, around)
            if adds_nothing:
                groups.union(outer, index)
            if not adds_nothing or observation.read.is_request:  # whose response id may be another
                only_child[outer] = index if outer not in only_child else -1
        for outer in _with_tokens_around(indexes, index):
            if observation.token_ids == observations[outer].token_ids:
                groups.union(outer, index)
    for outer, index in only_child.items():
        if index < 0:
            continue
        if observations[index].read.is_request:
            groups.union(outer, index, other_responses=True)
        elif _complement(observations[outer], observations[index]):
            groups.union(outer, index)
    wrappers = [outer for outer in sorted(wrapping) if groups.is_alone(outer)]
    for outer in wrappers:
        groups.remove(outer)
    return wrappers


def _choices_around(indexes: Indexes, index: int) -> Sequence[int]:
    """The choices of the nearest LLM span around a span."""
    above = indexes.tree.inherited[indexes.observations[index].key].call_above
    return _in_order(indexes, index, indexes.others_at_span.get(above, ())) if above is not None else ()


def _with_tokens_around(indexes: Indexes, index: int) -> Sequence[int]:
    """Choices of the nearest span around ``index`` that has tokens, where spans without any lie between the two."""
    inside = indexes.observations[index]
    if inside.token_ids is None:
        return ()
    above = indexes.tree.inherited[inside.key].call_above
    for between in range(WITHOUT_TOKENS_MAX + 1):
        around = indexes.others_at_span.get(above, ()) if above is not None else ()
        if above is None or not around:
            return ()
        if indexes.observations[around[0]].token_ids is not None:
            return _in_order(indexes, index, around) if between else ()
        above = indexes.tree.inherited[above].call_above
    return ()


def _in_order(indexes: Indexes, index: int, outer: Sequence[int]) -> Sequence[int]:
    """Some choices of the span around, first those of the same index: only one of them takes the span inside."""
    if len(outer) <= 1:
        return outer
    observations, choice = indexes.observations, indexes.observations[index].read.choice_index
    return sorted(outer[:OUTER_CHOICES_MAX], key=lambda i: observations[i].read.choice_index != choice)


def _adds_nothing(inside: Observation, around: Observation) -> bool:
    """Whether it has the same tokens, or nothing of its own; each of several requests is a call, whatever it says."""
    if inside.is_anonymous:
        return not inside.read.is_request
    return inside.token_ids is not None and inside.token_ids == around.token_ids


def _complement(around: Observation, inside: Observation) -> bool:
    """Whether one has the response id, the other the tokens."""
    return (
        around.read.response_id is not None
        and around.token_ids is None
        and inside.read.response_id is None
        and inside.token_ids is not None
    )


def join_by_answer_text(index: int, indexes: Indexes, groups: CallGroups) -> bool:
    """Join a span that quotes no response to a record before it with the same answer; ask in log order.

    A record is durable before its answer is given, so it precedes the spans that describe it. Of several with the same
    answer it is the last that no span of this scope has taken: each tracer reports a call once.

    Returns:
        Whether there is such a record.
    """
    observation = indexes.observations[index]
    answer = observation.answer_fingerprint
    if answer is None:
        return False
    records = indexes.records_by_answer.get(answer, [])
    before = bisect_left(records, index)
    if not before:
        return False
    taken = indexes.taken_answers.setdefault((answer, observation.scope), {})
    free = _last_free(taken, before - 1)
    if free >= 0:
        taken[free] = free - 1
    groups.union(records[free if free >= 0 else before - 1], index)
    return True


def _last_free(taken: dict[int, int], position: int) -> int:
    """The last position up to this one that is not ``taken``; -1 for none.

    Each taken position points at one before it, with none free between. All that were passed then point at the result,
    so that no path is walked twice.
    """
    free = position
    while free in taken:
        free = taken[free]
    while position != free:
        taken[position], position = free, taken[position]
    return free


def join_by_time(index: int, indexes: Indexes, groups: CallGroups) -> bool:
    """Join a span without an answer to the only record made during it that no span has described.

    Clocks decide nothing but this: which span to name beside a call that is recorded anyhow.

    Returns:
        Whether there is exactly one such record.
    """
    span = indexes.observations[index]
    if span.answer_fingerprint is not None or not 0 < span.start_unix_nano <= span.end_unix_nano:
        return False
    before = bisect_left(indexes.records, index)
    during = _made_during(span, indexes, indexes.records[max(0, before - LOOKED_BACK_MAX) : before], groups)
    record = next(during, None)
    if record is None or next(during, None) is not None:
        return False
    groups.union(record, index)
    return True


def _made_during(span: Observation, indexes: Indexes, records: Sequence[int], groups: CallGroups) -> Iterator[int]:
    for index in records:
        record = indexes.observations[index]
        within = span.start_unix_nano <= record.start_unix_nano and record.end_unix_nano <= span.end_unix_nano
        if within and groups.is_alone(index):
            yield index
