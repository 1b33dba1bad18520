"""Advantages, masks, weights, losses and gradients against a slow reference that shares no code with ours."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

from lightstream.trainers.engines.verl.config import KL_TYPES, POLICY_LOSSES
from lightstream.trainers.engines.verl.correction import RolloutCorrection, correct
from lightstream.trainers.engines.verl.loss import WeightedPolicyLoss
from lightstream.trainers.engines.verl.runtime import load_verl
from lightstream.trainers.engines.verl.tensors import REFERENCE, micro_batches, to_tensordict
from lightstream.trainers.rollouts.batch import (
    ADVANTAGES,
    LOSS_NORMALISATIONS,
    BatchArrays,
    BatchRows,
    Exclusion,
    Scoring,
    build_arrays,
    select_rows,
    token_weights,
)
from lightstream.trainers.rollouts.groups import Group

from .support.reference import CLIP_HIGH, CLIP_LOW, Correction, Kl, Options, Truth, make_groups, reference
from .support.trajectories import make_trajectory, make_triplet, own_from

TOLERANCE = 1e-5
BATCHES = 50


def random_options(chance: random.Random, advantage: str) -> Options:
    return Options(
        advantage=advantage,
        per=chance.choice(["rollout", "rollout", "turn"]),
        missing=chance.choice(["exclude", "fill", "fail_group"]),
        fill=chance.choice([0.0, -1.0]),
        normalisation=chance.choice(LOSS_NORMALISATIONS),
        oldest=chance.choice([None, 3]),
        prompt_max=chance.choice([None, 12]),
        response_max=chance.choice([None, 3]),
        overlong=chance.choice(["exclude", "truncate"]),
    )


def ours(groups: list[Group], options: Options) -> BatchRows:
    scoring: Any = {
        "advantage": options.advantage,
        "per": options.per,
        "reward_missing": options.missing,
        "reward_fill": options.fill,
    }
    overlong: Any = options.overlong
    return select_rows(
        groups,
        scoring=Scoring(**scoring),
        own=None if options.oldest is None else own_from(options.oldest),
        prompt_tokens_max=options.prompt_max,
        response_tokens_max=options.response_max,
        overlong=overlong,
    )


def actor_config(policy: str = "vanilla", kl: Kl | None = None) -> Any:
    from verl.workers.config import FSDPActorConfig, PolicyLossConfig

    return FSDPActorConfig(
        strategy="fsdp2",
        rollout_n=1,
        use_dynamic_bsz=True,
        clip_ratio=CLIP_HIGH,
        clip_ratio_low=CLIP_LOW,
        clip_ratio_high=CLIP_HIGH,
        entropy_coeff=0.0,
        policy_loss=PolicyLossConfig(loss_mode=policy),
        use_kl_loss=kl is not None,
        kl_loss_coef=0.0 if kl is None else kl.coefficient,
        kl_loss_type="k3" if kl is None else kl.estimator,
    )


def loss_and_gradient(
    arrays: BatchArrays,
    weights: np.ndarray[Any, Any],
    actor: dict[int, float],
    tokens_max: int,
    policy: str = "vanilla",
    kl: Kl | None = None,
) -> tuple[float, dict[int, float]]:
    """Ours, over micro-batches, with the actor's log-probabilities as they are given."""
    from verl.utils import tensordict_utils

    loss_function = WeightedPolicyLoss(actor_config(policy, kl))
    loss_function.start_step()
    told = {} if kl is None else {REFERENCE: [kl.reference.get(token, -1.0) for token in arrays.response_ids.tolist()]}
    further = {name: np.array(values, np.float32) for name, values in told.items()}
    batch = to_tensordict(arrays, weights, arrays.response_mask == 1, further)
    ids = arrays.input_ids.tolist()
    # The engine's output at a position is the log-probability of the token after it.
    values = torch.tensor([actor.get(token, -1.0) for token in [*ids[1:], 0]], dtype=torch.float64, requires_grad=True)
    ends = np.cumsum(arrays.lengths)
    starts = ends - arrays.lengths
    total = 0.0
    for part in micro_batches(arrays.lengths.tolist(), tokens_max):
        rows: Any = tensordict_utils.index_select_tensor_dict(batch, part)
        log_probs = torch.nested.as_nested_tensor(
            [values[starts[row] : ends[row]].float() for row in part], layout=torch.jagged
        )
        loss, _ = loss_function({"log_probs": log_probs}, rows)
        loss.backward()
        total += float(loss.detach())
    assert values.grad is not None
    gradient = dict.fromkeys(actor, 0.0)
    for token, slope in zip(ids[1:], values.grad[:-1].tolist(), strict=True):
        if token in gradient:  # as context of another row it counts for nothing
            gradient[token] += slope
    return total, gradient


def check(groups: list[Group], options: Options, chance: random.Random, policy: str = "vanilla") -> None:
    truth = reference(groups, options)
    rows = ours(groups, options)
    arrays = build_arrays(rows)
    for group in groups:
        for trajectory in group.trajectories:
            key = trajectory.rollout_id, trajectory.attempt_id
            expected = {reason: truth.reasons[key[0]].count(reason) for reason in truth.reasons[key[0]]}
            assert rows.not_trained[key] == expected
            calls = rows.triplets_used[key] + sum(n for reason, n in expected.items() if reason != "no_calls")
            assert calls == len(trajectory.triplets), "each call has a weight or a reason"
    trained = arrays.response_mask == 1
    tokens = arrays.response_ids[trained].tolist()
    assert sorted(tokens) == sorted(truth.advantages), "every token that is trained on, in exactly one row"
    advantages = dict(zip(tokens, arrays.advantages[trained].tolist(), strict=True))
    assert advantages == pytest.approx(truth.advantages, rel=TOLERANCE, abs=TOLERANCE)
    normalisation: Any = options.normalisation
    weights = token_weights(arrays, normalisation, constant_tokens=options.constant_tokens)
    assert dict(zip(tokens, weights[trained].tolist(), strict=True)) == pytest.approx(truth.weights, rel=TOLERANCE)
    assert not weights[~trained].any()
    if tokens:
        check_loss(arrays, weights, truth, chance, policy)


def check_loss(
    arrays: BatchArrays, weights: np.ndarray[Any, Any], truth: Truth, chance: random.Random, policy: str
) -> None:
    actor = {token: min(-0.01, logprob + chance.gauss(0, 0.4)) for token, logprob in truth.sampled.items()}
    kl = None
    if chance.random() < 0.5:
        estimator = chance.choice([*KL_TYPES, "k1+", "abs+", "low_var_kl+"])
        kl = Kl(chance.choice([0.1, 2.0]), estimator, {t: p + chance.gauss(0, 0.4) for t, p in actor.items()})
    loss, gradient = loss_and_gradient(arrays, weights, actor, chance.choice([1, 40, 10_000]), policy, kl)
    assert loss == pytest.approx(truth.loss(actor, policy, kl), rel=TOLERANCE, abs=TOLERANCE)
    assert {t: gradient[t] for t in truth.advantages} == pytest.approx(
        truth.gradient(actor, policy, kl), rel=TOLERANCE, abs=TOLERANCE
    )


@pytest.fixture(scope="module", autouse=True)
def verl() -> None:
    load_verl("cpu")


@pytest.mark.parametrize("advantage", ADVANTAGES)
def test_random_batches_are_as_the_reference_has_them(advantage: str) -> None:
    for seed in range(BATCHES):
        chance = random.Random(f"{advantage}-{seed}")
        check(make_groups(chance, greedy=advantage == "remax"), random_options(chance, advantage), chance)


@pytest.mark.parametrize("policy", POLICY_LOSSES)
def test_verls_policy_losses_are_as_the_reference_has_them(policy: str) -> None:
    for seed in range(BATCHES // 3):
        chance = random.Random(f"{policy}-{seed}")
        check(make_groups(chance), random_options(chance, "grpo"), chance, policy)


def check_correction(groups: list[Group], options: Options, chance: random.Random) -> bool:
    truth, arrays = reference(groups, options), build_arrays(ours(groups, options))
    rows = arrays.rows_with_signal.tolist()
    if not rows:
        return False
    level: Any = chance.choice([None, "token", "sequence"])
    reject = chance.choice([None, "token_k1", "seq_mean_k3"])
    bound = 1.5 if reject == "token_k1" else 0.05
    correction = RolloutCorrection(
        rollout_is=level,
        rollout_is_threshold=chance.choice([1.1, 2.0]),
        rollout_rs=reject,
        rollout_rs_threshold=bound if reject else None,
    )
    proximal = {token: logprob + chance.gauss(0, 0.3) for token, logprob in truth.sampled.items()}
    told = np.array([proximal.get(token, 0.0) for token in arrays.response_ids.tolist()])
    corrected = correct(arrays, told, rows, correction)
    expected = truth.corrected(proximal, Correction(level, correction.rollout_is_threshold, reject, bound), options)
    metrics = {"correction/rejected": expected.rejected}
    if level:
        metrics |= {
            "correction/ess": expected.ess,
            "correction/weight_mean": expected.mean,
            "correction/weight_max": expected.largest,
            "correction/cut": expected.cut,
        }
    assert corrected.metrics == pytest.approx(metrics, rel=TOLERANCE, abs=TOLERANCE)
    normalisation: Any = options.normalisation
    weights = token_weights(corrected.arrays, normalisation, constant_tokens=options.constant_tokens)
    weights *= corrected.factors
    trained = corrected.arrays.response_mask == 1
    assert dict(
        zip(corrected.arrays.response_ids[trained].tolist(), weights[trained].tolist(), strict=True)
    ) == pytest.approx(expected.truth.weights, rel=TOLERANCE)
    if trained.any():
        actor = {token: logprob + chance.gauss(0, 0.4) for token, logprob in proximal.items()}
        loss, gradient = loss_and_gradient(corrected.arrays, weights, actor, chance.choice([1, 40, 10_000]))
        assert loss == pytest.approx(expected.truth.loss(actor), rel=TOLERANCE, abs=TOLERANCE)
        assert {t: gradient[t] for t in expected.truth.advantages} == pytest.approx(
            expected.truth.gradient(actor), rel=TOLERANCE, abs=TOLERANCE
        )
    return True


def test_off_policy_corrections_are_as_the_reference_has_them() -> None:
    checked = 0
    for seed in range(3 * BATCHES):
        chance = random.Random(f"correction-{seed}")
        checked += check_correction(make_groups(chance), random_options(chance, "grpo"), chance)
    assert checked > BATCHES


@pytest.mark.soak
@pytest.mark.parametrize("advantage", ADVANTAGES)
def test_ten_thousand_random_batches_are_as_the_reference_has_them(advantage: str) -> None:
    for seed in range(BATCHES, BATCHES + 10_000):
        chance = random.Random(f"{advantage}-{seed}")
        check(make_groups(chance, greedy=advantage == "remax"), random_options(chance, advantage), chance)


def advantages_of(group: Group, **limits: Any) -> list[float]:
    arrays = build_arrays(select_rows([group], **limits))
    return sorted({round(float(a), 2) for a in arrays.advantages[arrays.response_mask == 1]})


def test_what_is_too_long_still_counts_in_the_mean() -> None:
    """Two right answers and six wrong ones that are too long: the right ones are better than their group."""
    members = [
        make_trajectory(f"r{i}", reward=float(i < 2), triplets=[make_triplet([1], [2] * (2 if i < 2 else 9))])
        for i in range(8)
    ]
    assert advantages_of(Group("g", tuple(members)), response_tokens_max=4) == [1.62]


def test_a_lone_reward_has_no_weight() -> None:
    members = [make_trajectory(f"r{i}", reward=1.0 if i == 0 else None) for i in range(8)]
    rows = select_rows([Group("g", tuple(members))])
    assert rows.rows == []
    assert rows.excluded == {Exclusion.NOT_COMPARABLE: 1, Exclusion.NO_REWARD: 7}


def test_best_of_n_is_the_cross_entropy_of_the_best_answers() -> None:
    rewards = {"best": 1.0, "worse": 0.5, "as-good": 1.0, "unknown": None}
    members = [
        make_trajectory(name, reward=reward, triplets=[make_triplet([1], [10 * number + 2, 10 * number + 3])])
        for number, (name, reward) in enumerate(rewards.items())
    ]
    rows = select_rows([Group("g", tuple(members))], scoring=Scoring(advantage="best_of_n"))
    assert {key[0]: dict(why) for key, why in rows.not_trained.items() if why} == {
        "worse": {"rejected": 1},
        "unknown": {"no_reward": 1},
    }
    arrays = build_arrays(rows)
    weights = token_weights(arrays, "token")
    logprobs = {2: -0.5, 3: -1.5, 22: -0.25, 23: -2.0}
    loss, gradient = loss_and_gradient(arrays, weights, logprobs, 10_000, "gpg")
    assert loss == pytest.approx(4.25 / 4)
    assert gradient == pytest.approx(dict.fromkeys(logprobs, -1 / 4))


def test_call_rewards_do_not_split_a_rollout() -> None:
    """Rollout B's calls have rewards of their own; its group's mean is over rollouts: (7 * 0 + 1) / 8 = 0.125."""
    members = [
        make_trajectory(
            f"r{i}",
            reward=float(i == 0),
            triplets=[make_triplet([1], [2], reward=float(i == 0 and call == 0), call_index=call) for call in range(4)],
        )
        for i in range(8)
    ]
    assert advantages_of(Group("g", tuple(members)), scoring=Scoring(advantage="group_mean")) == [-0.12, 0.88]


def test_five_turns_cost_their_distinct_tokens() -> None:
    members = []
    for number in range(4):
        history, triplets = [7] * 50, []
        for call in range(5):
            response = [10_000 * number + 100 * call + i for i in range(50)]
            triplets.append(make_triplet(history, response, call_index=call))
            history = [*history, *response, *[8] * 20]
        members.append(make_trajectory(f"r{number}", reward=float(number), triplets=triplets))
    arrays = build_arrays(select_rows([Group("g", tuple(members))]))
    distinct = sum(50 + 5 * 50 + 4 * 20 for _ in members)
    assert arrays.tokens == distinct
    assert arrays.response_mask.sum() == 4 * 5 * 50


def test_micro_batches_hold_their_limit_with_padding() -> None:
    chance = np.random.default_rng(0)
    for _ in range(20):
        lengths = np.exp(chance.normal(5.5, 1.0, size=512)).astype(int).clip(1).tolist()
        parts = micro_batches(lengths, 16_384)
        assert sorted(row for part in parts for row in part) == list(range(512))
        padded = [len(part) * max(lengths[row] for row in part) for part in parts]
        assert all(size <= 16_384 or len(part) == 1 for size, part in zip(padded, parts, strict=True))
        assert sum(padded) <= 1.1 * sum(lengths)
    assert micro_batches([8000] + [100] * 160, 16_384)[0] == [0]
    assert micro_batches([5, 9, 7], 4, packed=True) == [[1], [2], [0]]
