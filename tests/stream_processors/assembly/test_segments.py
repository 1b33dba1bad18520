"""Turns merged into sequences: exact masks, a reason for every break."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from lightstream.schemas.packing import unpack_float32, unpack_int32
from lightstream.schemas.records import PolicyVersionRun, SpanRecord
from lightstream.stream_processors.core.segments import (
    NO_VERSION,
    Segment,
    SegmentStart,
    merge_segments,
    segments_of,
    transitions_of,
)
from tests.support.examples import examples

from .build import assemble, framework_span, proxy_span, reward_span


def merged(*spans: SpanRecord, tokens_max: int | None = None) -> list[Segment]:
    """The segments of an attempt with these spans."""
    return segments_of(assemble(*spans), tokens_max)


def ids(segment: Segment) -> list[int]:
    """Token ids as a list."""
    return unpack_int32(segment.token_ids).tolist()


def starts(segments: list[Segment]) -> list[SegmentStart]:
    """Why each segment begins."""
    return [segment.start_reason for segment in segments]


def test_turns_that_continue_exactly_are_one_segment() -> None:
    first = proxy_span(1, [1, 2], [3, 4], response_model="policy@1")
    second = proxy_span(2, [1, 2, 3, 4, 5], [6], response_model="policy@2")
    (segment,) = merged(first, second, reward_span(3, 0.5))
    assert ids(segment) == [1, 2, 3, 4, 5, 6]
    assert list(segment.loss_mask) == [0, 0, 1, 1, 0, 1]
    assert unpack_float32(segment.logprobs).tolist() == [0, 0, -0.5, -0.5, 0, -0.5]
    assert unpack_int32(segment.policy_versions).tolist() == [NO_VERSION, NO_VERSION, 1, 1, NO_VERSION, 2]
    assert unpack_float32(segment.rewards).tolist() == [0, 0, 0, 0.5, 0, 0.5]
    assert [(turn.start, turn.end) for turn in segment.turns] == [(2, 4), (5, 6)]
    assert (segment.length, segment.prompt_length, segment.start_reason) == (6, 2, SegmentStart.FIRST)


def test_a_prompt_that_equals_the_context_goes_on_where_it_ended() -> None:
    (segment,) = merged(proxy_span(1, [1], [2]), proxy_span(2, [1, 2], [3]))
    assert (ids(segment), list(segment.loss_mask)) == ([1, 2, 3], [0, 1, 1])


def test_the_same_call_twice_is_a_branch() -> None:
    segments = merged(proxy_span(1, [1, 2], [3]), proxy_span(2, [1, 2], [3]))
    assert starts(segments) == [SegmentStart.FIRST, SegmentStart.BRANCH]
    assert [list(s.loss_mask) for s in segments] == [[0, 0, 1], [0, 0, 1]]


def test_why_a_segment_begins() -> None:
    first = proxy_span(1, [1, 2], [3, 4])
    second = proxy_span(2, [1, 2, 3, 4, 5], [6])
    cases = {
        SegmentStart.RETOKENISED: proxy_span(3, [1, 2, 3, 9, 5], [6]),
        SegmentStart.EDITED_HISTORY: proxy_span(3, [1, 8, 3, 4, 5], [6]),
        SegmentStart.BRANCH: proxy_span(3, [1, 2, 3, 4, 7], [6]),
    }
    for reason, span in cases.items():
        segments = merged(first, second, span)
        assert starts(segments) == [SegmentStart.FIRST, reason]
        assert len(segments[0].turns) == 2
    assert [s.diverged_at for s in merged(first, second, cases[SegmentStart.RETOKENISED])] == [-1, 3]


def test_a_response_that_comes_back_without_its_first_token_came_back_as_other_ids() -> None:
    first = proxy_span(1, [1, 2, 3], [10, 11, 12])
    second = proxy_span(2, [1, 2, 3, 10, 11, 12, 4], [20, 21])
    of_the_first = merged(first, proxy_span(3, [1, 2, 3, 11, 12, 7], [5]))
    of_the_second = merged(first, second, proxy_span(3, [1, 2, 3, 10, 11, 12, 4, 21, 7], [5]))
    for segments, diverged_at in ((of_the_first, 3), (of_the_second, 7)):
        assert (segments[-1].start_reason, segments[-1].diverged_at) == (SegmentStart.RETOKENISED, diverged_at)


def test_a_prompt_that_ends_where_a_response_began_is_a_branch() -> None:
    first = proxy_span(1, [1, 2, 3], [10])
    segments = merged(first, proxy_span(2, [1, 2, 3, 10, 4], [20]), proxy_span(3, [1, 2, 3, 10, 4], [21]))
    assert starts(segments) == [SegmentStart.FIRST, SegmentStart.BRANCH]


def test_agents_are_not_merged_and_each_goes_on_with_its_own() -> None:
    spans = [
        framework_span(90, {"agent.name": "a"}),
        framework_span(91, {"agent.name": "b"}),
        proxy_span(1, [1], [2], parent=90),
        proxy_span(2, [1, 2], [7], parent=91),
        proxy_span(3, [1, 2, 3], [4], parent=90),
        proxy_span(4, [1, 2, 7, 8], [9], parent=91),
    ]
    segments = merged(*spans)
    assert [s.agent_name for s in segments] == ["a", "b"]
    assert starts(segments) == [SegmentStart.FIRST, SegmentStart.SUB_AGENT]
    assert [len(s.turns) for s in segments] == [2, 2]


def test_parallel_conversations_interleave() -> None:
    spans = [
        proxy_span(1, [1, 10], [2]),
        proxy_span(2, [1, 20], [2]),
        proxy_span(3, [1, 10, 2, 3], [4]),
        proxy_span(4, [1, 20, 2, 3], [4]),
    ]
    segments = merged(*spans)
    assert [ids(s) for s in segments] == [[1, 10, 2, 3, 4], [1, 20, 2, 3, 4]]


def test_a_call_that_is_too_long_stands_alone_and_whole() -> None:
    segments = merged(proxy_span(1, [1], [2]), proxy_span(2, [1, 2, 3, 4], [5, 6]), tokens_max=4)
    assert starts(segments) == [SegmentStart.FIRST, SegmentStart.TOO_LONG]
    assert segments[1].length == 6


def test_missing_values_stay_visible() -> None:
    (segment,) = merged(proxy_span(1, [1], [2, 3], response_logprobs=None, response_model="base"))
    assert [math.isnan(x) for x in unpack_float32(segment.logprobs)] == [False, True, True]
    assert unpack_int32(segment.policy_versions).tolist() == [NO_VERSION] * 3
    assert [math.isnan(x) for x in unpack_float32(segment.rewards)] == [False, False, True]


def test_transition_level_is_one_segment_a_call() -> None:
    trajectory = assemble(proxy_span(1, [1], [2]), proxy_span(2, [1, 2], [3]))
    assert [ids(s) for s in transitions_of(trajectory)] == [[1, 2], [1, 2, 3]]


def test_a_version_beyond_32_bits_is_known_of_the_turn_alone() -> None:
    (segment,) = merged(proxy_span(1, [1], [2], response_model="policy@20260131120000"))
    assert unpack_int32(segment.policy_versions).tolist() == [NO_VERSION] * 2
    assert segment.turns[0].policy_version == 20260131120000


Turns = list[tuple[list[int], list[int]]]


@st.composite
def conversations(draw: Any) -> Turns:  # mypy binds DrawFn's type to the result's
    """Calls that continue, branch, retokenise or edit earlier ones, over few ids so that prefixes collide."""
    turns: Turns = []
    for _ in range(draw(st.integers(1, 12))):
        length = draw(st.sampled_from([1, 2, 5, 70, 130]))
        extra = draw(st.lists(st.integers(0, 2), min_size=0, max_size=3))
        prompt = [7] * length
        if turns and draw(st.booleans()):
            base = turns[draw(st.integers(0, len(turns) - 1))]
            prompt = [*base[0], *base[1], *extra]
            if draw(st.integers(0, 4)) == 0:
                prompt[draw(st.integers(0, len(prompt) - 1))] = 9
        response = draw(st.lists(st.integers(0, 2), min_size=1, max_size=4))
        turns.append((prompt, response))
    return turns


@given(conversations(), st.one_of(st.none(), st.integers(1, 200)))
@settings(deadline=None, max_examples=examples(300))
def test_every_sampled_token_has_mask_one_exactly_once(turns: Turns, tokens_max: int | None) -> None:
    spans = [
        proxy_span(n, prompt, response, response_model=f"policy@{n}") for n, (prompt, response) in enumerate(turns, 1)
    ]
    trajectory = assemble(*spans)
    segments = merge_segments(trajectory.triplets, tokens_max)
    seen: list[int] = []
    for segment in segments:
        tokens, versions = ids(segment), unpack_int32(segment.policy_versions).tolist()
        sampled = [False] * segment.length
        for turn in segment.turns:
            seen.append(turn.call_index)
            prompt, response = turns[turn.call_index]
            assert tokens[: turn.end] == prompt + response
            assert turn.start == len(prompt)
            assert versions[turn.start : turn.end] == [turn.call_index + 1] * len(response)
            assert not any(sampled[turn.start : turn.end])
            sampled[turn.start : turn.end] = [True] * len(response)
        assert list(segment.loss_mask) == [int(value) for value in sampled]
        logprobs = unpack_float32(segment.logprobs).tolist()
        assert logprobs == [-0.5 if value else 0.0 for value in sampled]
        assert len(segment.rewards) == 4 * segment.length
        assert tokens_max is None or segment.length <= tokens_max or segment.start_reason == SegmentStart.TOO_LONG
    assert sorted(seen) == list(range(len(turns)))
    assert starts(segments)[0] in {SegmentStart.FIRST, SegmentStart.TOO_LONG}


@given(conversations())
@settings(deadline=None, max_examples=examples(200))
def test_a_call_is_merged_whenever_an_open_segment_could_take_it(turns: Turns) -> None:
    spans = [proxy_span(n, prompt, response) for n, (prompt, response) in enumerate(turns, 1)]
    segments = segments_of(assemble(*spans))
    open_ids: list[list[int]] = []
    for prompt, response in turns:
        fitting = [known for known in open_ids if prompt[: len(known)] == known]
        if fitting:
            open_ids.remove(max(fitting, key=len))
        open_ids.append(prompt + response)
    assert sorted(ids(segment) for segment in segments) == sorted(open_ids)


def test_each_token_keeps_the_version_that_sampled_it() -> None:
    """Weights were swapped after the first token of the second call."""
    first, second = proxy_span(1, [1, 2], [3, 4]), proxy_span(2, [1, 2, 3, 4, 5], [6, 7, 8])
    assert second.llm_call is not None
    runs = [PolicyVersionRun(first_token=0, policy_version=3), PolicyVersionRun(first_token=1, policy_version=4)]
    swapped = second.llm_call.model_copy(update={"policy_version": None, "policy_version_runs": runs})
    trajectory = assemble(first, second.model_copy(update={"llm_call": swapped}))
    assert trajectory.triplets[1].policy_version == 3, "that of its first token"
    assert trajectory.triplets[1].policy_version_runs == runs
    (segment,) = segments_of(trajectory)
    none = NO_VERSION
    assert unpack_int32(segment.policy_versions).tolist() == [none, none, 3, 3, none, 3, 4, 4]
