"""From groups to arrays: nothing lost without a reason, every sampled token once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightstream.schemas.errors import SettingsError
from lightstream.schemas.packing import pack_float32
from lightstream.schemas.records import RewardRecord, Trajectory, TripletRecord
from lightstream.trainers.rollouts.batch import (
    Exclusion,
    Scoring,
    build_arrays,
    group_advantages,
    rollout_score,
    select_rows,
)
from lightstream.trainers.rollouts.groups import Group
from tests.support.examples import examples

from .support.trajectories import make_trajectory, make_triplet, own_from


def group_of(*triplets: TripletRecord, reward: float | None = 1.0) -> Group:
    """A rollout with these calls, and another to compare it with."""
    numbered = [triplet.model_copy(update={"call_index": index}) for index, triplet in enumerate(triplets)]
    other = make_trajectory("g-1", group_id="g", reward=0.0, triplets=[make_triplet([9], [9], policy_version=9)])
    return Group("g", (make_trajectory("g-0", group_id="g", reward=reward, triplets=numbered), other))


GOOD = make_triplet([1, 2], [3], policy_version=5)


@pytest.mark.parametrize(
    ("triplet", "reason"),
    [
        (GOOD.model_copy(update={"response_logprobs": None}), Exclusion.NO_LOGPROBS),
        (GOOD.model_copy(update={"response_logprobs": pack_float32([-1, -1])}), Exclusion.MISALIGNED),
        (GOOD.model_copy(update={"response_logprobs": pack_float32([math.nan])}), Exclusion.MISALIGNED),
        (GOOD.model_copy(update={"response_mask": b""}), Exclusion.MISALIGNED),
        (GOOD.model_copy(update={"response_mask": b"\x00"}), Exclusion.EMPTY),
        (GOOD.model_copy(update={"prompt_token_ids": b"\x01\x02\x03"}), Exclusion.MISALIGNED),
        (make_triplet([], [1], policy_version=5), Exclusion.EMPTY),
        (make_triplet([1], [], policy_version=5), Exclusion.EMPTY),
        (make_triplet([1] * 9, [1], policy_version=5), Exclusion.TOO_LONG),
        (make_triplet([1], [1] * 9, policy_version=5), Exclusion.TOO_LONG),
        (make_triplet([1], [1], policy_version=2), Exclusion.STALE),
        (make_triplet([1], [1], policy_version=None), Exclusion.UNKNOWN_VERSION),
    ],
)
def test_a_call_that_cannot_be_trained_on_is_counted_by_reason(triplet: TripletRecord, reason: Exclusion) -> None:
    group = group_of(triplet, make_triplet([1], [1], policy_version=3))
    rows = select_rows([group], own=own_from(3), prompt_tokens_max=8, response_tokens_max=8)
    assert rows.excluded == {reason: 1}
    assert len(rows.rows) == 2
    assert rows.triplets_used == {("g-0", "g-0-a1"): 1, ("g-1", "g-1-a1"): 1}
    assert rows.not_trained == {("g-0", "g-0-a1"): {reason.value: 1}, ("g-1", "g-1-a1"): {}}


@pytest.mark.parametrize("reward", [None, math.nan, math.inf, 1e39])
def test_a_rollout_without_a_finite_reward_is_left_out(reward: float | None) -> None:
    rows = select_rows([group_of(GOOD, reward=reward)])
    reason = Exclusion.NO_REWARD if reward is None else Exclusion.NOT_FINITE
    assert rows.excluded == {reason: 1, Exclusion.NOT_COMPARABLE: 1}
    assert rows.groups_without_signal == 1
    filled = select_rows([group_of(GOOD, reward=reward)], scoring=Scoring(reward_missing="fill", reward_fill=-1.0))
    assert [row.spans[0].advantage for row in filled.rows] == pytest.approx([-0.7071, 0.7071], abs=1e-3)


def test_a_trajectory_without_calls_is_recorded_with_none() -> None:
    empty = make_trajectory("g-1", group_id="g", triplets=[])
    rows = select_rows([Group("g", (empty,))])
    assert rows.rows == []
    assert rows.excluded == {Exclusion.NO_CALLS: 1}
    assert rows.triplets_used == {("g-1", "g-1-a1"): 0}


def test_equal_rewards_are_no_signal() -> None:
    members = [make_trajectory(f"g-{i}", reward=0.1, triplets=[make_triplet([1], [2])]) for i in range(3)]
    rows = select_rows([Group("g", tuple(members))])
    assert not rows.has_signal
    assert len(rows.rows) == 3, "they count in the denominators"
    assert rows.excluded == {Exclusion.NO_SIGNAL: 3}


def test_a_reward_by_link_counts_where_the_rollout_has_none() -> None:
    linked = make_trajectory("g-0", reward=None).model_copy(
        update={"rewards": [RewardRecord(value=0.25, span_id="1", call_index=0) for _ in range(2)]}
    )
    assert rollout_score(linked) == 0.5


def test_rows_do_not_depend_on_the_order_in_which_parallel_calls_arrived() -> None:
    calls = [make_triplet([1, 2], [number], policy_version=5) for number in (7, 3, 5)]
    orders = [[0, 1, 2], [2, 0, 1], [1, 2, 0]]
    tokens = [
        [row.segment.token_ids for row in select_rows([group_of(*(calls[i] for i in order))]).rows] for order in orders
    ]
    assert tokens[0] == tokens[1] == tokens[2]
    assert len(tokens[0]) == 4


def test_each_dimension_of_the_reward_is_compared_by_itself() -> None:
    def member(name: str, **rewards: float) -> Trajectory:
        records = [RewardRecord(name=key, value=value, span_id="1") for key, value in rewards.items()]
        return make_trajectory(name, reward=None).model_copy(update={"rewards": records})

    group = Group(
        "g", (member("a", right=1.0, brief=100.0), member("b", right=0.0, brief=300.0), member("c", right=1.0))
    )
    scoring = Scoring(dimensions={"right": 1.0, "brief": 0.5})
    rows = select_rows([group], scoring=scoring)
    right = group_advantages([1.0, 0.0, 1.0], Scoring())
    brief = group_advantages([100.0, 300.0], Scoring())
    assert [row.spans[0].advantage for row in rows.rows] == pytest.approx(
        [(right[0] or 0.0) + 0.5 * (brief[0] or 0.0), (right[1] or 0.0) + 0.5 * (brief[1] or 0.0)]
    )
    assert rows.excluded == {Exclusion.NO_REWARD: 1}


@pytest.mark.parametrize(
    "wrong", [{"advantage": "opo"}, {"per": "token"}, {"reward_missing": "zero"}, {"reward_fill": math.nan}]
)
def test_unknown_names_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        Scoring(**wrong)


TOKENS = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=6)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.tuples(TOKENS, TOKENS), min_size=2, max_size=8))
def test_every_token_is_in_its_place(calls: list[tuple[list[int], list[int]]]) -> None:
    triplets = [make_triplet(prompt, response, [-0.5 * i for i in range(len(response))]) for prompt, response in calls]
    members = [make_trajectory(f"g-{n}", reward=float(n), triplets=[t]) for n, t in enumerate(triplets)]
    arrays = build_arrays(select_rows([Group("g", tuple(members))], scoring=Scoring(advantage="group_mean")))
    assert len(arrays) == len(calls)
    assert arrays.tokens == sum(len(p) + len(r) for p, r in calls)
    at = response_at = 0
    for i, (prompt, response) in enumerate(calls):
        assert (arrays.prompt_lengths[i], arrays.response_lengths[i]) == (len(prompt), len(response))
        whole = prompt + response
        assert arrays.input_ids[at : at + len(whole)].tolist() == whole
        assert arrays.position_ids[at : at + len(whole)].tolist() == list(range(len(whole)))
        part = slice(response_at, response_at + len(response))
        assert arrays.response_ids[part].tolist() == response
        assert arrays.response_logprobs[part].tolist() == [-0.5 * j for j in range(len(response))]
        assert arrays.advantages[part].tolist() == [i - (len(calls) - 1) / 2] * len(response)
        assert arrays.policy_versions[part].tolist() == [0] * len(response)
        at += len(whole)
        response_at += len(response)
    assert arrays.response_mask.tolist() == [1] * response_at, "every sampled token, each once"
    assert arrays.input_ids.dtype == np.int64
    assert arrays.input_ids.flags.writeable
