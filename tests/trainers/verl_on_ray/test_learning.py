"""The whole system with a model in two processes: an agent behind the proxy learns."""

from __future__ import annotations

from pathlib import Path

import pytest

from lightstream.runtime.settings import Settings
from lightstream.trainers import VERL, StepReport, Trainer, make_tiny_model, teach_answers
from lightstream.up import Stack
from tests.support.digits import digit_tasks, say_digit

pytestmark = pytest.mark.verl_ray

STEPS_MAX = 60
TARGET = 0.95
DIGITS = 10
ROOT = Path(__file__).parents[3]


def test_an_agent_learns_with_a_model_in_two_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)  # where Runner processes find the agent
    reports: list[StepReport] = []
    settings = Settings.load(data_dir=tmp_path, topic_partitions=2)
    with Stack(settings, services=("worker", "view", "policy", "proxy")) as stack:
        Trainer(
            algorithm=VERL(
                model=make_tiny_model(tmp_path / "model"),
                warm_up=teach_answers(["say 0"], [str(digit) for digit in range(DIGITS)], steps=20, end_turn=False),
                steps=STEPS_MAX,
                tasks_per_step=4,
                rollouts_per_task=8,
                learning_rate=1e-2,
                weight_decay=0.0,
                sampling_parameters={"max_tokens": 1},
                threads=1,
                processes=2,
                engine="ray",
                device="cpu",
                reward_target=TARGET,
                reward_target_steps=3,
                checkpoint_every=5,
            ),
            settings=stack.settings,
            trainer_id="digits",
            n_runners=1,
            runner_concurrency=32,
            observers=[reports.append],
        ).fit(say_digit, digit_tasks(1))
    rewards = [report.mean_reward for report in reports]
    print([round(reward, 2) for reward in rewards])
    assert rewards[0] < 0.3
    assert sum(rewards[-3:]) / 3 >= TARGET
    assert all(
        report.logprob_diff_max < 1e-3 for report in reports if report.logprob_diff_max == report.logprob_diff_max
    )
