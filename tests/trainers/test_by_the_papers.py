"""Random batches against the second reference, written from the papers: every estimator, loss and normalisation."""

from __future__ import annotations

import math
import random
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lightstream.trainers import VERL
from lightstream.trainers.engines.verl.loss import WeightedPolicyLoss
from lightstream.trainers.engines.verl.models import actor_config
from lightstream.trainers.engines.verl.runtime import load_verl
from lightstream.trainers.engines.verl.tensors import to_tensordict
from lightstream.trainers.rollouts.batch import (
    LOSS_NORMALISATIONS,
    BatchArrays,
    Scoring,
    build_arrays,
    select_rows,
    token_weights,
)
from lightstream.trainers.rollouts.groups import Group

from .support.papers import Answer, Rollout, advantages, loss_and_gradient, weights
from .support.trajectories import make_trajectory, make_triplet

TOLERANCE = 1e-5
ROUNDING = 1e-15
"""Of float64, over a few operations."""
CONSTANT = 16
ESTIMATORS = ("grpo", "dr_grpo", "rloo", "reinforce_plus_plus", "reinforce_plus_plus_baseline")
CLIPS = {"vanilla": (0.2, 0.2), "gspo": (3e-4, 4e-4), "cispo": (math.inf, 0.2)}
"""By the papers; CISPO's has no number for its upper bound."""


@pytest.fixture(scope="module", autouse=True)
def verl() -> None:
    load_verl("cpu")


def random_rollout(chance: random.Random) -> Rollout:
    """Failures, several choices of a call, answers that were cut off or spoilt, and rewards of every size."""
    reward = chance.choice([0.0, 1.0, chance.gauss(0, 1), -3e4, 1e12, None, 1e39, -1e308, math.inf, math.nan])
    if chance.random() < 0.7:
        reward = chance.choice([0.0, 1.0, chance.gauss(0, 1)])
    answers = [
        Answer(
            [-chance.uniform(0.01, 6) for _ in range(chance.randint(1, 6))],
            cut_off=chance.random() < 0.15,
            spoilt=chance.random() < 0.1,
        )
        for _ in range(chance.choice([0, 1, 1, 1, 1, 3]))
    ]
    return Rollout(reward, answers)


Place = tuple[int, int, int]


def as_groups(batch: list[list[Rollout]]) -> tuple[list[Group], dict[Place, list[int]]]:
    """The same as trajectories; each token has an id of its own, by which it is found again."""
    fresh, ids = count(10), dict[Place, list[int]]()
    groups = []
    for g, group in enumerate(batch):
        members = []
        for r, rollout in enumerate(group):
            calls = []
            for a, answer in enumerate(rollout.answers):
                ids[g, r, a] = [next(fresh) for _ in answer.sampled]
                call = make_triplet([1, 2, 3], ids[g, r, a], answer.sampled, reward=rollout.reward, call_index=a)
                changes: dict[str, Any] = {"finish_reason": "length" if answer.cut_off else "stop", "choice_index": a}
                calls.append(call.model_copy(update=changes | ({"response_logprobs": None} if answer.spoilt else {})))
            members.append(make_trajectory(f"g{g}-{r}", reward=rollout.reward, triplets=calls, group_size=len(group)))
        groups.append(Group(f"g{g}", tuple(members)))
    return groups, ids


def of_ours(
    arrays: BatchArrays, token_weight: Any, actor: dict[int, float], loss: str
) -> tuple[float, dict[int, float]]:
    """The product's loss, and its gradient by each trained token's log-probability."""
    objective = WeightedPolicyLoss(actor_config(VERL(model="none", steps=1, policy_loss=loss)))
    objective.start_step()
    batch = to_tensordict(arrays, token_weight, arrays.response_mask == 1)
    ids = arrays.input_ids.tolist()
    values = torch.tensor([actor.get(token, -1.0) for token in [*ids[1:], 0]], dtype=torch.float64, requires_grad=True)
    ends = np.cumsum(arrays.lengths).tolist()
    starts = [end - length for end, length in zip(ends, arrays.lengths.tolist(), strict=True)]
    rows = [values[start:end].float() for start, end in zip(starts, ends, strict=True)]
    total, _ = objective({"log_probs": torch.nested.as_nested_tensor(rows, layout=torch.jagged)}, batch)
    total.backward()
    assert values.grad is not None
    return float(total.detach()), {
        token: slope for token, slope in zip(ids[1:], values.grad[:-1].tolist(), strict=True) if token in actor
    }


def check(chance: random.Random, estimator: Any, normalisation: Any, loss: str) -> bool:
    batch = [[random_rollout(chance) for _ in range(chance.randint(1, 6))] for _ in range(chance.randint(1, 4))]
    groups, ids = as_groups(batch)
    rows = select_rows(groups, scoring=Scoring(advantage=estimator), response_tokens_max=CONSTANT)
    arrays = build_arrays(rows)
    of_paper = advantages(batch, estimator)
    kept = [
        (g, r, a)
        for g, r, a in ids
        if of_paper[g][r] is not None and not batch[g][r].answers[a].cut_off and not batch[g][r].answers[a].spoilt
    ]
    trained = arrays.response_mask == 1
    tokens = arrays.response_ids[trained].tolist()
    assert sorted(tokens) == sorted(token for place in kept for token in ids[place])
    if not kept:
        return False
    factors = dict(zip(kept, weights(batch, kept, normalisation, CONSTANT), strict=True))
    low, high = CLIPS[loss]
    # A reward of 1e12 beside one of 1 leaves the latter's advantage four digits of float64.
    rounding = ROUNDING * max(abs(a) for group in of_paper for a in group if a is not None)
    allowed = slope_allowed = 0.0
    actor: dict[int, float] = {}
    expected = 0.0
    slopes: dict[int, float] = {}
    for place in kept:
        sampled = batch[place[0]][place[1]].answers[place[2]].sampled
        now = [min(-0.01, p + chance.gauss(0, 0.4)) for p in sampled]
        actor |= zip(ids[place], now, strict=True)
        advantage = of_paper[place[0]][place[1]]
        assert advantage is not None
        values, slope = loss_and_gradient(loss, advantage, sampled, now, low, high)
        lost = rounding / abs(advantage) if advantage else 0.0
        expected += factors[place] * math.fsum(values)
        allowed += factors[place] * math.fsum(map(abs, values)) * (TOLERANCE + lost)
        slope_allowed = max(slope_allowed, *(factors[place] * abs(s) * lost for s in slope))
        slopes |= {token: factors[place] * s for token, s in zip(ids[place], slope, strict=True)}
    of_tokens = token_weights(arrays, normalisation, constant_tokens=CONSTANT)
    found, gradient = of_ours(arrays, of_tokens, actor, loss)
    largest = max(abs(value) for value in slopes.values())
    assert found == pytest.approx(expected, rel=TOLERANCE, abs=allowed)  # terms may cancel out, in float32
    assert gradient == pytest.approx(slopes, rel=TOLERANCE, abs=TOLERANCE * max(1e-9, largest * 1e-3) + slope_allowed)
    return True


@pytest.mark.parametrize("loss", CLIPS)
@pytest.mark.parametrize("normalisation", LOSS_NORMALISATIONS)
@pytest.mark.parametrize("estimator", ESTIMATORS)
@settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32))
def test_random_batches_are_as_the_papers_have_them(estimator: str, normalisation: str, loss: str, seed: int) -> None:
    check(random.Random(seed), estimator, normalisation, loss)


@pytest.mark.soak
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_ten_thousand_batches_are_as_the_papers_have_them(estimator: str) -> None:
    made = 0
    for seed in range(10_000 // len(ESTIMATORS)):
        chance = random.Random(f"{estimator}-{seed}")
        made += check(chance, estimator, chance.choice(LOSS_NORMALISATIONS), chance.choice(list(CLIPS)))
    assert made > 1_000
