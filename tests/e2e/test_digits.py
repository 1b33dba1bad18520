"""The whole system with real processes: an agent behind the proxy learns, and everything is accounted for."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.watch import take_account
from lightstream.schemas.settings import Settings
from lightstream.store_views.client import ViewClient
from lightstream.trainers import VERL, StepReport, Trainer, make_tiny_model, teach_answers
from lightstream.up import Stack
from tests.support.digits import digit_tasks, say_digit
from tests.support.waiting import eventually

STEPS, GROUPS, SAMPLES = 8, 4, 8
DIGITS = 1
"""One of the four digits that the warm-up teaches is asked for: a few steps find out which."""

LOGPROB_DIFF_MAX = 1e-3
ROOT = Path(__file__).parents[2]


def test_an_agent_learns_behind_the_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)  # where Runner processes find the agent
    reports: list[StepReport] = []
    settings = Settings.load(data_dir=tmp_path, topic_partitions=2)
    with Stack(settings, services=("worker", "view", "policy", "proxy")) as stack:
        trainer = Trainer(
            algorithm=VERL(
                model=make_tiny_model(tmp_path / "model"),
                warm_up=teach_answers(["say 0"], ["0", "1", "2", "3"], steps=20, end_turn=False),
                steps=STEPS,
                tasks_per_step=GROUPS,
                rollouts_per_task=SAMPLES,
                learning_rate=1e-2,
                weight_decay=0.0,
                sampling_parameters={"max_tokens": 1},
                threads=1,
                validate_every=STEPS - 1,
            ),
            settings=stack.settings,
            trainer_id="digits",
            n_runners=1,
            runner_concurrency=GROUPS * SAMPLES,
            observers=[reports.append],
        )
        trainer.fit(say_digit, [task for task in digit_tasks(10) if task["digit"] < DIGITS], digit_tasks(DIGITS))
        view = ViewClient(stack.settings)
        eventually(lambda: view.query("SELECT count(*) FROM training_steps").scalar() == STEPS, what="all steps shown")
        account = take_account(view)
        funnel = {(row[0], row[2]): row[1] for row in view.query("SELECT stage, count, reason FROM funnel").rows}
        versions = view.query("SELECT DISTINCT policy_version FROM triplets ORDER BY 1").rows
        view.close()
    rewards = [report.mean_reward for report in reports]
    print([round(reward, 2) for reward in rewards])
    assert [report.step for report in reports] == list(range(1, STEPS + 1))
    assert sum(rewards[-3:]) / 3 > sum(rewards[:3]) / 3 + 0.2, rewards
    assert all(report.logprob_diff_max < LOGPROB_DIFF_MAX for report in reports)
    assert all(report.rollouts == report.rows == GROUPS * SAMPLES for report in reports)
    assert "validation/reward_mean" in reports[0].metrics
    assert [row[0] for row in versions] == list(range(STEPS)), "each step was sampled by the policy before it"
    trained, validated = STEPS * GROUPS * SAMPLES, funnel["rollouts not trained", "it is a val rollout"]
    assert validated > 0
    assert funnel == {  # each rollout is one attempt with one call
        ("rollouts enqueued", ""): trained + validated,
        ("rollouts succeeded", ""): trained + validated,
        ("attempts", ""): trained + validated,
        ("LLM calls made", ""): trained + validated,
        ("LLM calls pending", ""): 0,
        ("LLM calls in triplets", ""): trained + validated,
        ("final trajectories", ""): trained + validated,
        ("final trajectories with a reward", ""): trained + validated,
        ("trajectories trained", ""): trained,
        ("rollouts not trained", "it is a val rollout"): validated,
    }
    assert account.calls["balanced"], account.calls
    assert account.training["balanced"], account.training
    assert account.dead_letters == 0
