"""Each rule of deduplication by itself: the positions that it makes one call, and those that it leaves alone."""

from __future__ import annotations

from collections.abc import Sequence

from lightstream.schemas.packing import pack_int32
from lightstream.stream_processors.core.assembly import Node, Observation, SpanKey, resolve
from lightstream.stream_processors.core.assembly._calls import CallGroups
from lightstream.stream_processors.core.assembly._deduplication import (
    Indexes,
    deduplicate,
    join_by_answer_text,
    join_by_response_id,
    join_by_time,
    join_by_tokens,
    join_nested,
    join_resent,
    join_same_proxy_call,
)
from lightstream.stream_processors.core.dialects import PROXY, ReadCall

TRACE = "a" * 32


def observed(
    number: int,
    *,
    proxy: bool = False,
    response_id: str | None = None,
    tokens: Sequence[int] | None = None,
    choice: int = 0,
    request: bool = False,
    answer: int | None = None,
    scope: str = "tracer",
    during: tuple[int, int] = (0, 0),
) -> Observation:
    """What span ``number`` tells of a call; tokens are the response's, after the prompt ``[1]``."""
    read = ReadCall(PROXY if proxy else "tracer", response_id, choice, is_request=request)
    if tokens is not None:
        read.prompt_token_ids, read.response_token_ids = pack_int32([1]), pack_int32(tokens)
    start, end = during
    return Observation(
        (TRACE, str(number)),
        number,
        read,
        start_unix_nano=start,
        end_unix_nano=end,
        answer_fingerprint=answer,
        scope=scope,
    )


class Attempt:
    """Observations in log order; ``parents`` says which span lies in which."""

    def __init__(self, *observations: Observation, parents: dict[int, int] | None = None) -> None:
        nodes: dict[SpanKey, Node] = {}
        for observation in observations:
            parent = (parents or {}).get(int(observation.key[1]))
            nodes[observation.key] = Node(None if parent is None else (TRACE, str(parent)), 0, observation.offset)
            nodes[observation.key].tells_of_call = True
        self.observations = observations
        self.tree = resolve(nodes)
        self.groups = CallGroups(observations)
        each_once = join_same_proxy_call(observations, self.groups)
        records = join_resent(each_once, observations, self.groups)
        others = [index for index, observation in enumerate(observations) if not observation.by_proxy]
        self.indexes = Indexes(observations, self.tree, records, others, each_once)

    def joined(self) -> list[list[int]]:
        """The positions of each call."""
        calls: dict[int, list[int]] = {}
        for index in range(len(self.observations)):
            if self.groups.is_present(index):
                calls.setdefault(self.groups.root(index), []).append(index)
        return list(calls.values())


def test_join_same_proxy_call_wants_the_same_response_and_the_same_tokens() -> None:
    def record(number: int, response_id: str | None, *tokens: int) -> Observation:
        return observed(number, proxy=True, response_id=response_id, tokens=tokens)

    attempt = Attempt(
        record(1, "x", 4),
        record(2, "x", 4),
        record(3, "x", 5),
        record(4, "y", 4),
        record(5, None, 4),
        record(6, None, 4),
    )
    assert attempt.joined() == [[0, 1], [2], [3], [4], [5]]
    assert attempt.indexes.records == [0, 2, 3, 4, 5], "each call once"


def test_join_resent_joins_each_request_that_was_sent_again_to_one_before_it() -> None:
    def record(number: int, *tokens: int, again: int = 0) -> Observation:
        found = observed(number, proxy=True, response_id=f"r{number}", tokens=tokens)
        found.read.resend_count = again
        return found

    attempt = Attempt(
        record(1, 4, again=1),
        record(2, 4),
        record(3, 4, again=1),
        record(4, 4, again=1),
        record(5, 5, again=1),
        record(6, 5),
        observed(7, response_id="r3"),
    )
    assert attempt.joined() == [[0], [1, 2, 3], [4], [5], [6]], "the last before it; and nothing before the first"
    assert attempt.indexes.records == [0, 1, 4, 5], "each call once"
    records = attempt.indexes.records_by_response
    assert join_by_response_id(6, attempt.indexes, records, attempt.groups)
    assert attempt.joined() == [[0], [1, 2, 3, 6], [4], [5]], "the agent's span quotes the answer that it saw"

    refused = observed(2, proxy=True)
    refused.read.failure = "HTTP 503"
    assert Attempt(record(1, 4), refused, record(3, 4, again=1)).joined() == [[0], [1], [2]], (
        "the refused one came again"
    )
    assert Attempt(record(1, 4), refused, record(3, 4, again=2)).joined() == [[0, 2], [1]]


def test_join_by_response_id_takes_the_last_record_before_the_span() -> None:
    attempt = Attempt(
        observed(1, response_id="x"),
        observed(2, proxy=True, response_id="x", tokens=[4]),
        observed(3, proxy=True, response_id="x", tokens=[5]),
        observed(4, response_id="x"),
        observed(5, response_id="x", choice=1),
        observed(6, response_id="z"),
        observed(7),
    )
    records = attempt.indexes.records_by_response
    found = [i for i in attempt.indexes.others if join_by_response_id(i, attempt.indexes, records, attempt.groups)]
    assert found == [0, 3]
    assert attempt.joined() == [[0, 1], [2, 3], [4], [5], [6]], "before the first record, that is meant"


def test_join_by_tokens_takes_each_record_once_before_the_last_again() -> None:
    attempt = Attempt(
        observed(1, proxy=True, tokens=[4]),
        observed(2, proxy=True, tokens=[4]),
        *(observed(number, tokens=[4]) for number in (3, 4, 5)),
        observed(6, tokens=[5]),
        observed(7),
    )
    found = [i for i in attempt.indexes.others if join_by_tokens(i, attempt.indexes, attempt.groups)]
    assert found == [2, 3, 4]
    assert attempt.joined() == [[0, 2], [1, 3, 4], [5], [6]]


def test_join_nested_joins_what_adds_nothing_and_removes_wrappers() -> None:
    same = Attempt(observed(1, tokens=[4]), observed(2, tokens=[4]), observed(3), parents={2: 1, 3: 1})
    assert (join_nested(same.indexes, same.groups), same.joined()) == ([], [[0, 1, 2]])
    other = Attempt(observed(1, tokens=[4]), observed(2, tokens=[5]), parents={2: 1})
    assert (join_nested(other.indexes, other.groups), other.joined()) == ([], [[0], [1]])
    wrapped = Attempt(observed(1), observed(2, tokens=[4]), observed(3, tokens=[5]), parents={2: 1, 3: 1})
    assert (join_nested(wrapped.indexes, wrapped.groups), wrapped.joined()) == ([0], [[1], [2]])
    between = Attempt(observed(1, tokens=[4]), observed(2), observed(3, tokens=[4]), parents={2: 1, 3: 2})
    assert (join_nested(between.indexes, between.groups), between.joined()) == ([], [[0, 1, 2]])


def test_join_nested_joins_the_only_request_and_the_only_complement() -> None:
    outer = observed(1, response_id="x", tokens=[4])
    one = Attempt(outer, observed(2, response_id="y", tokens=[5], request=True), parents={2: 1})
    join_nested(one.indexes, one.groups)
    assert one.joined() == [[0, 1]], "though it quotes another response"
    requests = [observed(number, response_id=str(number), tokens=[5], request=True) for number in (2, 3)]
    two = Attempt(outer, *requests, parents={2: 1, 3: 1})
    join_nested(two.indexes, two.groups)
    assert two.joined() == [[0], [1], [2]]
    complement = Attempt(observed(1, response_id="x"), observed(2, tokens=[4]), parents={2: 1})
    join_nested(complement.indexes, complement.groups)
    assert complement.joined() == [[0, 1]]


def test_join_by_answer_text_takes_the_last_record_before_that_its_scope_has_not_taken() -> None:
    attempt = Attempt(
        observed(1, answer=7),
        observed(2, proxy=True, answer=7),
        observed(3, proxy=True, answer=7),
        observed(4, answer=7),
        observed(5, answer=7),
        observed(6, answer=7, scope="another tracer"),
        observed(7, answer=8),
        observed(8),
        observed(9, proxy=True, answer=8),
    )
    found = [i for i in attempt.indexes.others if join_by_answer_text(i, attempt.indexes, attempt.groups)]
    assert found == [3, 4, 5]
    assert attempt.joined() == [[0], [1, 4], [2, 3, 5], [6], [7], [8]], "a record precedes the spans that describe it"


def test_join_by_time_wants_exactly_one_record_made_during_the_span() -> None:
    record = observed(1, proxy=True, during=(12, 18))

    def joins(span: Observation, *records: Observation) -> bool:
        attempt = Attempt(*records, span)
        return join_by_time(len(records), attempt.indexes, attempt.groups)

    assert joins(observed(9, during=(10, 20)), record)
    assert not joins(observed(9, during=(13, 20)), record)
    assert not joins(observed(9, during=(10, 20), answer=7), record), "its answer says that it is another call"
    assert not joins(observed(9), record), "it has no times"
    second = observed(2, proxy=True, during=(13, 14))
    assert not joins(observed(9, during=(10, 20)), record, second)
    assert joins(observed(9, during=(10, 15)), record, second)


def test_the_rules_apply_in_their_order() -> None:
    observations = [
        observed(1, proxy=True, response_id="x", tokens=[4], answer=7),
        observed(2, proxy=True, response_id="y", tokens=[5], answer=8),
        observed(3, response_id="x", tokens=[5]),  # the response id comes before the tokens
        observed(4, response_id="elsewhere", tokens=[5]),  # tokens before a response that the proxy did not record
        observed(5, response_id="elsewhere"),
        observed(6, response_id="elsewhere"),
        observed(7, answer=7),
        observed(8, answer=9),
    ]
    attempt = Attempt(*observations)
    result = deduplicate(observations, attempt.tree)
    calls = [[int(call.key[1]), *(int(other.key[1]) for other in call.joined)] for call in result.calls]
    assert calls == [[1, 3, 7], [2, 4], [5, 6]]
    assert [int(observation.key[1]) for observation in result.unattributed] == [8]
