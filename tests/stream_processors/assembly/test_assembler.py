"""From the records of an attempt to its trajectory."""

from __future__ import annotations

from lightstream.schemas.packing import pack_float32, pack_int32, unpack_int32
from lightstream.schemas.records import AttemptClosed, AttemptOpened, AttemptStatus, DropReason, SpanRecord
from lightstream.stream_processors.core.assembly import Assembler

from .build import assemble, closed, opened, proxy_span, reward_span, span_id


def test_calls_become_triplets_in_log_order_with_mask_logprobs_and_policy_version() -> None:
    trajectory = assemble(proxy_span(1, [1, 2], [3, 4, 5]), proxy_span(2, [7], [8]), reward_span(3, 0.5))
    first, second = trajectory.triplets
    assert unpack_int32(first.prompt_token_ids).tolist() == [1, 2]
    assert unpack_int32(first.response_token_ids).tolist() == [3, 4, 5]
    assert first.response_logprobs == pack_float32([-0.5] * 3)
    assert first.response_mask == b"\x01\x01\x01"
    assert (first.policy_version, second.policy_version) == (3, 3)
    assert (first.call_index, second.call_index) == (0, 1)
    assert (first.reward, second.reward, trajectory.reward) == (0.5, 0.5, 0.5)
    assert trajectory.drops == []
    assert trajectory.notes == []
    assert (trajectory.span_count, trajectory.call_count) == (3, 2)
    assert (trajectory.source.partition, trajectory.source.first_offset, trajectory.source.last_offset) == (0, 0, 4)


def test_a_missing_reward_stays_missing() -> None:
    trajectory = assemble(proxy_span(1))
    assert trajectory.reward is None
    assert trajectory.triplets[0].reward is None


def test_an_attempt_without_calls_gives_an_empty_trajectory() -> None:
    trajectory = assemble()
    assert (trajectory.triplets, trajectory.drops, trajectory.call_count) == ([], [], 0)


def test_the_rollouts_group_and_input_are_on_the_trajectory() -> None:
    trajectory = assemble(group_id="g", group_size=4, run_id="run", input_json="[1]", resources_id="v2")
    assert (trajectory.group_id, trajectory.group_size, trajectory.run_id) == ("g", 4, "run")
    assert (trajectory.input_json, trajectory.resources_id) == ("[1]", "v2")


def test_an_attempt_that_is_retried_has_no_triplets_but_tells_of_its_calls() -> None:
    trajectory = assemble(proxy_span(1), proxy_span(2), final=False)
    assert not trajectory.final
    assert trajectory.status == AttemptStatus.FAILED
    assert trajectory.triplets == []
    assert [drop.reason for drop in trajectory.drops] == [DropReason.ATTEMPT_NOT_FINAL] * 2


def test_one_bad_call_each_is_dropped_with_its_reason_and_the_rest_is_unharmed() -> None:
    bad = {
        DropReason.NO_TOKEN_IDS: proxy_span(1, prompt_token_ids=None),
        DropReason.EMPTY_RESPONSE: proxy_span(2, [1], []),
        DropReason.LOGPROBS_LENGTH_MISMATCH: proxy_span(3, response_logprobs=pack_float32([-1.0])),
        DropReason.BAD_TOKEN_IDS: proxy_span(4, response=[-1, 5]),
        DropReason.BAD_LOGPROBS: proxy_span(5, response_logprobs=pack_float32([float("nan"), -1.0])),
        DropReason.CALL_FAILED: proxy_span(6, http_status=500, error_message="boom"),
    }
    trajectory = assemble(*bad.values(), proxy_span(7), reward_span(8, 1.0))
    assert [drop.reason for drop in trajectory.drops] == list(bad)
    assert [drop.span_id for drop in trajectory.drops] == [span_id(n) for n in range(1, 7)]
    assert [triplet.span_id for triplet in trajectory.triplets] == [span_id(7)]
    assert trajectory.triplets[0].reward == 1.0
    assert trajectory.call_count == 7


def test_other_unusable_tokens() -> None:
    cases = [
        (proxy_span(1, prompt_token_ids=b"\0\0\0"), DropReason.BAD_TOKEN_IDS),
        (proxy_span(1, prompt=[]), DropReason.NO_TOKEN_IDS),
        (proxy_span(1, response_token_ids=None), DropReason.NO_TOKEN_IDS),
        (proxy_span(1, response_logprobs=b""), DropReason.LOGPROBS_LENGTH_MISMATCH),
        (proxy_span(1, response_logprobs=pack_float32([0.5, -1.0])), DropReason.BAD_LOGPROBS),
        (proxy_span(1, response_logprobs=pack_float32([float("-inf"), -1.0])), DropReason.BAD_LOGPROBS),
        (proxy_span(1, http_status=None, error_message="timed out"), DropReason.CALL_FAILED),
    ]
    for span, reason in cases:
        assert [drop.reason for drop in assemble(span).drops] == [reason], span.llm_call


def test_logprobs_may_be_missing_and_may_overshoot_zero_by_rounding() -> None:
    trajectory = assemble(
        proxy_span(1, response_logprobs=None), proxy_span(2, response_logprobs=pack_float32([1e-6, 0.0]))
    )
    assert [t.response_logprobs is None for t in trajectory.triplets] == [True, False]


def test_several_attempts_interleave() -> None:
    assembler = Assembler()
    records: list[SpanRecord | AttemptOpened | AttemptClosed] = [
        opened("a"),
        opened("b"),
        proxy_span(1, rollout_id="a"),
        proxy_span(2, rollout_id="b"),
        closed("b"),
        proxy_span(3, rollout_id="a"),
        opened("c"),
        closed("a"),
        closed("c"),
    ]
    waters: list[int] = []
    done: list[tuple[str, int]] = []
    for offset, record in enumerate(records, start=100):
        done += [(t.rollout_id, len(t.triplets)) for t in assembler.on_record(record, offset)]
        waters.append(assembler.low_water(offset + 1))
    assert done == [("b", 1), ("a", 2), ("c", 0)]
    assert waters == [100, 100, 100, 100, 100, 100, 100, 106, 109]


def test_records_of_attempts_that_are_not_open_are_ignored() -> None:
    assembler = Assembler()
    assert assembler.on_records([(proxy_span(1), 0), (closed(), 1)]) == []
    assert assembler.low_water(2) == 2
    assert assembler.ignored_count == 2


def test_repeated_opening_and_closing_records_change_nothing() -> None:
    assembler = Assembler()
    records: list[SpanRecord | AttemptOpened | AttemptClosed] = [
        opened(),
        proxy_span(1),
        opened(),
        closed(),
        closed(),
        opened(),
        closed(),
    ]
    (trajectory,) = assembler.on_records((r, i) for i, r in enumerate(records))
    assert len(trajectory.triplets) == 1
    assert assembler.open_count == 0


def test_a_repeated_span_counts_once_and_one_with_other_content_is_a_conflict() -> None:
    twice = proxy_span(1, [1], [2])
    trajectory = assemble(twice, twice, proxy_span(1, [1], [3]), proxy_span(2))
    assert [t.response_token_ids for t in trajectory.triplets] == [pack_int32([2]), pack_int32([4, 5])]
    (drop,) = trajectory.drops
    assert (drop.reason, drop.is_llm_call, drop.source_offset) == (DropReason.CONFLICTING_SPAN, False, 3)
