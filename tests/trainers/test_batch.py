"""From groups to arrays: nothing lost without a reason, every sampled token once."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightstream.schemas.packing import pack_float32, unpack_float32, unpack_int32
from lightstream.schemas.records import TripletRecord
from lightstream.trainers.batch import Exclusion, build_arrays, select_rows
from lightstream.trainers.groups import Group

from .support.trajectories import make_trajectory, make_triplet


def group_of(*triplets: TripletRecord, group_id: str = "g") -> Group:
    return Group(group_id, (make_trajectory(f"{group_id}-0", group_id=group_id, triplets=triplets),))


GOOD = make_triplet([1, 2], [3])


@pytest.mark.parametrize(
    ("triplet", "reason"),
    [
        (GOOD.model_copy(update={"reward": None}), Exclusion.NO_REWARD),
        (GOOD.model_copy(update={"reward": math.nan}), Exclusion.NO_REWARD),
        (GOOD.model_copy(update={"response_logprobs": None}), Exclusion.NO_LOGPROBS),
        (GOOD.model_copy(update={"response_logprobs": pack_float32([-1, -1])}), Exclusion.MISALIGNED),
        (GOOD.model_copy(update={"response_mask": b""}), Exclusion.MISALIGNED),
        (GOOD.model_copy(update={"prompt_token_ids": b"\x01\x02\x03"}), Exclusion.MISALIGNED),
        (make_triplet([], [1]), Exclusion.EMPTY),
        (make_triplet([1], []), Exclusion.EMPTY),
        (make_triplet([1] * 9, [1]), Exclusion.TOO_LONG),
        (make_triplet([1], [1] * 9), Exclusion.TOO_LONG),
        (make_triplet([1], [1], policy_version=2), Exclusion.STALE),
    ],
)
def test_a_call_that_cannot_be_trained_on_is_counted_by_reason(triplet: TripletRecord, reason: Exclusion) -> None:
    kept = make_triplet([1], [1], policy_version=None)
    rows = select_rows([group_of(triplet, kept)], oldest_policy_version=3, prompt_tokens_max=8, response_tokens_max=8)
    if reason is Exclusion.STALE or triplet.policy_version == 2:
        assert rows.excluded == {reason: 1}
    else:
        rows = select_rows([group_of(triplet, kept)], prompt_tokens_max=8, response_tokens_max=8)
        assert rows.excluded == {reason: 1}
    assert len(rows.rows) == 1
    assert rows.triplets_used == {("g-0", "g-0-a1"): 1}


def test_a_trajectory_without_calls_is_recorded_with_none() -> None:
    empty = make_trajectory("g-1", group_id="g", triplets=[])
    rows = select_rows([Group("g", (empty,))])
    assert rows.rows == []
    assert rows.excluded == {Exclusion.NO_CALLS: 1}
    assert rows.triplets_used == {("g-1", "g-1-a1"): 0}


def test_a_rollout_is_scored_once_however_often_it_called() -> None:
    talker = make_trajectory("g-0", triplets=[make_triplet([1], [2], reward=1.0, call_index=i) for i in range(3)])
    quiet = make_trajectory("g-1", triplets=[make_triplet([1], [2], reward=0.0)])
    varied = make_trajectory(
        "h-0", triplets=[make_triplet([1], [2], reward=r, call_index=i) for i, r in enumerate([0.0, 1.0])]
    )
    arrays = build_arrays(select_rows([Group("g", (talker, quiet)), Group("h", (varied,))]).rows)
    assert arrays.unit_groups == ["g", "g", "h", "h"]
    assert arrays.unit_rewards.tolist() == [1.0, 0.0, 0.0, 1.0]
    assert arrays.unit_of_row.tolist() == [0, 0, 0, 1, 2, 3]


TOKENS = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=6)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(TOKENS, TOKENS), min_size=1, max_size=8))
def test_every_token_is_in_its_place(calls: list[tuple[list[int], list[int]]]) -> None:
    triplets = [
        make_triplet(prompt, response, [-0.5 * i for i in range(len(response))], call_index=n)
        for n, (prompt, response) in enumerate(calls)
    ]
    arrays = build_arrays(select_rows([group_of(*triplets)]).rows)
    assert len(arrays) == len(calls)
    assert arrays.tokens == sum(len(p) + len(r) for p, r in calls)
    at = response_at = 0
    for i, (prompt, response) in enumerate(calls):
        assert (arrays.prompt_lengths[i], arrays.response_lengths[i]) == (len(prompt), len(response))
        whole = prompt + response
        assert arrays.input_ids[at : at + len(whole)].tolist() == whole
        assert arrays.position_ids[at : at + len(whole)].tolist() == list(range(len(whole)))
        part = slice(response_at, response_at + len(response))
        assert arrays.response_ids[part].tolist() == unpack_int32(triplets[i].response_token_ids).tolist()
        stored = triplets[i].response_logprobs
        assert stored is not None
        assert arrays.response_logprobs[part].tolist() == unpack_float32(stored).tolist()
        at += len(whole)
        response_at += len(response)
    assert arrays.response_mask.tolist() == [1] * response_at, "every sampled token, each once"
    assert arrays.input_ids.dtype == np.int64
    assert arrays.input_ids.flags.writeable
