"""Only what this run's policy sampled, at a known version and temperature, has weight; the rest has a reason."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from lightstream.schemas.records import PolicyVersionRun, TripletRecord
from lightstream.schemas.sampling import NEUTRAL_SAMPLING, sampling_of_request
from lightstream.trainers.loop.metrics import group_metrics
from lightstream.trainers.rollouts.batch import (
    OwnPolicy,
    Scoring,
    build_arrays,
    select_rows,
    token_weights,
    tokens_distinct,
    weigh_rows,
)
from lightstream.trainers.rollouts.groups import Group

from .support.trajectories import make_trajectory, make_triplet

OWN = OwnPolicy(name="digits", run_id="digits", version=7, versions_back=1, temperature=0.7)


def call(**changes: Any) -> TripletRecord:
    """A call of the policy's own, but for ``changes``."""
    own: dict[str, Any] = {
        "model": "digits@7",
        "policy_version": 7,
        "resources_id": "digits-v7",
        "sampling_json": '{"temperature": 0.7}',
    }
    return make_triplet([1, 2], [10, 11]).model_copy(update=own | changes)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"policy_version": 6, "model": "digits@6", "resources_id": "digits-v6"}, None),
        ({"resources_id": None}, None),  # the name of the model says whose it is
        ({"resources_id": None, "model": "openai/digits@7"}, None),
        ({"model": ""}, None),  # the resources say it
        ({"model": "renamed@7"}, None),
        ({"sampling_json": None}, None),  # assembled before requests were kept
        (
            {
                "policy_version_runs": [
                    PolicyVersionRun(first_token=0, policy_version=6),
                    PolicyVersionRun(first_token=1, policy_version=7),
                ]
            },
            None,
        ),
        ({"resources_id": "other-v7"}, "other_policy"),  # another run on the same server
        ({"resources_id": "digits-v6"}, "other_policy"),  # says another version than it has
        ({"resources_id": "digits-2-v7"}, "other_policy"),
        ({"resources_id": None, "model": "champion@7"}, "other_policy"),
        ({"resources_id": None, "model": "gpt-judge", "policy_version": None}, "other_policy"),
        ({"resources_id": None, "model": ""}, "other_policy"),  # nobody knows whose
        ({"policy_version": 50, "model": "digits@50", "resources_id": "digits-v50"}, "other_policy"),
        ({"policy_version": None, "resources_id": None, "model": "digits"}, "unknown_version"),
        ({"policy_version": 5, "resources_id": "digits-v5"}, "stale"),
        ({"sampling_json": "{}"}, "other_temperature"),  # left to the server, whose default is 1
        ({"sampling_json": '{"temperature": 1.0}'}, "other_temperature"),
        ({"sampling_json": '{"temperature": 0}'}, "other_temperature"),
        ({"sampling_json": '{"temperature": "0.7"}'}, "other_temperature"),
        ({"sampling_json": '{"temperature": true}'}, "other_temperature"),
        ({"sampling_json": "null"}, "other_temperature"),  # nobody recorded the request
        ({"sampling_json": "no JSON"}, "other_temperature"),
        ({"sampling_json": '{"temperature": 0.7, "top_p": 0.9}'}, "other_sampling"),
        ({"sampling_json": '{"temperature": 0.7, "top_p": 1.0, "logit_bias": {}, "top_k": -1}'}, None),
        ({"sampling_json": '{"temperature": 0.7, "tool_choice": "required"}'}, "other_sampling"),
    ],
)
def test_a_call_is_the_policys_own_or_has_a_reason(changes: dict[str, Any], reason: str | None) -> None:
    found = OWN.reason_against(call(**changes))
    assert (None if found is None else found.value) == reason


@pytest.mark.parametrize("name", NEUTRAL_SAMPLING)
def test_every_parameter_that_changes_the_distribution_is_kept_and_told(name: str) -> None:
    request = {"messages": [], "temperature": 0.7, "max_tokens": 8, name: "anything"}
    assert json.loads(sampling_of_request(request)) == {"temperature": 0.7, name: "anything"}
    reason = OWN.reason_against(call(sampling_json=sampling_of_request(request)))
    assert reason is not None
    assert reason.value == "other_sampling"


def team(i: int) -> Any:
    """A player, the champion it plays against, a judge, and the player at another temperature."""
    calls = [
        call(),
        call(model="champion@50", policy_version=50, resources_id="champion-v50"),
        call(model="gpt-judge", policy_version=None, resources_id=None),
        call(sampling_json='{"temperature": 0.2}'),
    ]
    return make_trajectory(
        f"r{i}", reward=float(i % 2), triplets=[c.model_copy(update={"call_index": n}) for n, c in enumerate(calls)]
    )


@pytest.mark.parametrize("advantage", ["grpo", "reinforce_plus_plus", "gae"])
@pytest.mark.parametrize("per", ["rollout", "turn"])
def test_no_token_of_an_opponent_a_judge_or_another_temperature_has_weight(advantage: Any, per: Any) -> None:
    group = Group("g", tuple(team(i) for i in range(4)))
    rows = select_rows([group], scoring=Scoring(advantage=advantage, per=per), own=OWN)
    assert {span.call_index for row in rows.rows for span in row.spans} == {0}
    assert rows.excluded["other_policy"] == 8  # type: ignore[index]  # an Exclusion is its text
    assert rows.excluded["other_temperature"] == 4  # type: ignore[index]  # as above
    weighed = weigh_rows([(t, 1.0) for t in group.trajectories], own=OWN)
    assert {span.call_index for row in weighed.rows for span in row.spans} == {0}
    assert weighed.not_trained["r0", "r0-a1"] == {"other_policy": 2, "other_temperature": 1}


def test_whitening_and_comparing_turns_look_at_own_calls_alone() -> None:
    """A judge's calls, however many and long, do not move the advantages of the policy's."""
    for scoring in (Scoring(advantage="reinforce_plus_plus"), Scoring(per="turn")):
        alone, beside = list[list[float]](), list[list[float]]()
        for judges, found in ((0, alone), (3, beside)):
            members = []
            for i in range(4):
                own = call().model_copy(update={"reward": float(i)})
                judge = make_triplet([1], [5] * (1 + i), reward=9.0 * i).model_copy(update={"model": "judge"})
                calls = [own, *[judge.model_copy(update={"call_index": n + 1}) for n in range(judges)]]
                members.append(make_trajectory(f"r{i}", reward=float(i), triplets=calls))
            rows = select_rows([Group("g", tuple(members))], scoring=scoring, own=OWN)
            found.append([span.advantage for row in rows.rows for span in row.spans])
        assert alone == beside


@pytest.mark.parametrize("normalisation", ["constant", "rollout", "sequence"])
def test_what_is_left_out_does_not_change_the_weight_of_the_others(normalisation: Any) -> None:
    def weights(make_bad: Any, bad: int, came: int = 8) -> set[float]:
        members = [
            make_trajectory(
                f"r{i}",
                reward=float(i % 2),
                group_size=8,
                triplets=make_bad() if i < bad else [make_triplet([1], [2, 3])],
            )
            for i in range(8)
        ][8 - came :]
        rows = select_rows([Group("g", tuple(members))], response_tokens_max=4)
        found = token_weights(build_arrays(rows), normalisation, constant_tokens=4)
        return set(np.round(found[found > 0], 12).tolist())

    expected = {round(1 / (8 * (4 if normalisation == "constant" else 2)), 12)}
    for make_bad in (list, lambda: [make_triplet([1], [2] * 9)], lambda: [make_triplet([1], [])]):
        assert [weights(make_bad, bad) for bad in (0, 4, 6)] == [expected] * 3
    assert weights(list, 0, came=6) == expected, "of a group of eight, two never came"


def test_answers_that_were_cut_off_are_overlong_whatever_their_length() -> None:
    def rows(**limits: Any) -> tuple[int, dict[str, int]]:
        members = [
            make_trajectory(
                f"r{i}",
                reward=float(i % 2),
                triplets=[make_triplet([1], [2] * 8).model_copy(update={"finish_reason": "length" if i else "stop"})],
            )
            for i in range(4)
        ]
        found = select_rows([Group("g", tuple(members))], **limits)
        return len(found.rows), {reason.value: n for reason, n in found.excluded.items()}

    assert rows() == (4, {})
    assert rows(response_tokens_max=8) == (1, {"too_long": 3})
    assert rows(response_tokens_max=8, overlong="truncate") == (4, {})


@pytest.mark.parametrize("huge", [1e39, -1e308, math.inf, math.nan])
def test_a_reward_that_no_engine_can_hold_is_left_out_by_name_and_the_others_train(huge: float) -> None:
    calls = [make_triplet([1], [2], reward=huge)]
    good = [make_trajectory(f"r{i}", reward=float(i)) for i in range(3)]
    members = [make_trajectory("bad", reward=huge, triplets=calls), *good]
    alone = select_rows([Group("g", tuple(members[1:]))])
    rows = select_rows([Group("g", tuple(members))])
    assert group_metrics([Group("g", (members[0], *members))])["reward/mean"] == 1.0
    assert rows.not_trained["bad", "bad-a1"] == {"not_finite": 1}
    assert [row.spans for row in rows.rows] == [row.spans for row in alone.rows]


def test_an_advantage_beyond_float32_is_left_out_by_name() -> None:
    members = tuple(make_trajectory(f"r{i}", reward=3e38 * (-1) ** i) for i in range(2))
    rows = select_rows([Group("g", members)], scoring=Scoring(advantage="rloo"))
    assert not rows.rows
    assert {reason.value: n for reason, n in rows.excluded.items()} == {"not_finite": 2}


def test_tokens_that_rows_of_a_rollout_share_are_distinct_once() -> None:
    """Reasoning is taken out of the history: each row begins as the one before, up to where it was."""
    calls = [make_triplet([1, 2, 3], [4, 5]), make_triplet([1, 2, 3, 5, 6], [7, 8], call_index=1)]
    kept = [make_triplet([1, 2, 3], [4, 5]), make_triplet([1, 2, 3, 4, 5, 6], [7, 8], call_index=1)]
    for triplets, computed, distinct in ((calls, 12, 9), (kept, 8, 8)):
        members = [make_trajectory(f"r{i}", reward=float(i), triplets=triplets) for i in range(2)]
        arrays = build_arrays(select_rows([Group("g", tuple(members))]))
        every = range(len(arrays))
        assert (arrays.tokens, tokens_distinct(arrays, every)) == (2 * computed, 2 * distinct)
