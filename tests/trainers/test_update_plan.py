"""The plan of an update, without a model and without torch: rows, weights, and the order of its passes."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from lightstream.trainers import VERL, Group
from lightstream.trainers.engines.verl.plan import UpdatePlan, plan_update
from lightstream.trainers.rollouts.batch import BatchArrays, build_arrays, select_rows, token_weights

from .support.trajectories import random_trajectory

GAE: dict[str, Any] = {"advantage": "gae"}


def options(**changes: Any) -> VERL:
    given: dict[str, Any] = {"steps": 3} | changes
    return VERL(model="m", **given)


def arrays_of(config: VERL) -> BatchArrays:
    """Three groups, one of which has no signal."""
    groups = [
        Group(
            name,
            tuple(
                random_trajectory(
                    f"{name}-{i}", group_id=name, group_size=4, run_id="run", policy_version=version
                ).model_copy(update={"reward": 1.0 if name == "a" else float(i % 2)})
                for i in range(4)
            ),
        )
        for version, name in enumerate(("a", "b", "c"))
    ]
    return build_arrays(select_rows(groups, scoring=config.scoring))


def planned(config: VERL, **arguments: Any) -> tuple[UpdatePlan, BatchArrays]:
    arrays = arrays_of(config)
    given: dict[str, Any] = {"policy_version": None, "seed": (1,)} | arguments
    return plan_update(config, arrays, **given), arrays


@pytest.mark.parametrize(
    ("changes", "alone", "passes"),
    [
        pytest.param({}, False, ["weigh", "actor"], id="one step compares in it"),
        pytest.param({"mini_batches_per_step": 2}, False, ["weigh", "compare", "actor"], id="several compare before"),
        pytest.param({"steps_ahead": 1}, False, ["correct", "weigh", "actor"], id="a correction compares"),
        pytest.param(
            {"kl_loss_coefficient": 0.1, "epochs_per_step": 2},
            False,
            ["weigh", "reference", "compare", "actor"],
            id="a KL in the loss",
        ),
        pytest.param({"kl_reward_coefficient": 0.1}, False, ["weigh", "actor"], id="the loop has taken it already"),
        pytest.param(
            GAE | {"kl_reward_coefficient": 0.1},
            False,
            ["reward_kl", "weigh", "values", "actor", "critic"],
            id="a critic",
        ),
        pytest.param(
            GAE | {"steps_ahead": 1, "kl_loss_coefficient": 0.1, "mini_batches_per_step": 2},
            False,
            ["correct", "weigh", "values", "reference", "actor", "critic"],
            id="a corrected critic",
        ),
        pytest.param(
            GAE | {"kl_loss_coefficient": 0.1}, True, ["weigh", "values", "compare", "look", "critic"], id="warm-up"
        ),
        pytest.param(
            GAE | {"steps_ahead": 1}, True, ["correct", "weigh", "values", "look", "critic"], id="corrected warm-up"
        ),
    ],
)
def test_the_passes_are_in_this_order(changes: dict[str, Any], alone: bool, passes: list[str]) -> None:
    plan, _ = planned(options(**changes), critic_learns_alone=alone)
    assert list(plan.passes) == passes


def test_each_row_with_a_signal_is_in_one_mini_batch_of_each_epoch() -> None:
    config = options(mini_batches_per_step=3, epochs_per_step=2)
    plan, arrays = planned(config)
    with_signal = arrays.rows_with_signal.tolist()
    assert plan.rows == sorted(with_signal)
    assert 0 < len(with_signal) < len(arrays)
    first, second = plan.mini_batches[:3], plan.mini_batches[3:]
    assert sorted(row for part in first for row in part) == plan.rows
    assert sorted(row for part in second for row in part) == plan.rows
    assert first != second
    again, _ = planned(config)
    other, _ = planned(config, seed=(2,))
    assert (again.mini_batches, again.torch_seed) == (plan.mini_batches, plan.torch_seed)
    assert (other.mini_batches, other.torch_seed) != (plan.mini_batches, plan.torch_seed)


def test_an_entropy_has_every_row_computed() -> None:
    plan, arrays = planned(options(entropy_coefficient=0.01))
    assert plan.rows == list(range(len(arrays)))


def test_weights_are_those_of_the_normalisation_times_the_mini_batches() -> None:
    config = options(mini_batches_per_step=4, loss_normalisation="rollout")
    plan, arrays = planned(config)
    np.testing.assert_array_equal(plan.weights(arrays), token_weights(arrays, "rollout") * 4)
    few, _ = planned(options(mini_batches_per_step=1000))
    assert few.factor == len(arrays), "there are no more mini-batches than rows"


def test_tokens_of_the_policy_s_own_version_are_compared() -> None:
    plan, arrays = planned(options(), policy_version=1)
    assert plan.compared.any()
    assert (arrays.policy_versions[plan.compared] == 1).all()
    everything, _ = planned(options())
    np.testing.assert_array_equal(everything.compared, arrays.response_mask == 1)


def test_torch_is_not_needed() -> None:
    program = (
        "import sys; sys.modules |= dict.fromkeys(('torch', 'verl', 'transformers'))\n"
        "from lightstream.trainers.engines.verl.plan import plan_update"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
