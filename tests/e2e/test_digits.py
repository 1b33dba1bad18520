"""The whole system with real processes: an agent behind the proxy learns, and everything is accounted for."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.watch import take_account
from lightstream.schemas.records import StepOutcome
from lightstream.store_views.client import ViewClient
from lightstream.trainers import VERL, StepReport, Trainer, make_tiny_model, teach_answers
from lightstream.up import Stack
from tests.support.digits import digit_tasks, say_digit
from tests.support.topics import settings_on
from tests.support.waiting import eventually

STEPS, GROUPS, SAMPLES = 8, 4, 8
DIGITS = 1
"""One of the four digits that the warm-up teaches is asked for: a few steps find out which."""

LOGPROB_DIFF_MAX = 1e-3
ROOT = Path(__file__).parents[2]


def test_an_agent_learns_behind_the_proxy(kafka_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)  # where Runner processes find the agent
    reports: list[StepReport] = []
    settings = settings_on(kafka_servers, tmp_path)
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
        made = "SELECT count(*) FROM training_steps WHERE outcome <> 'measured'"
        eventually(lambda: view.query(made).scalar() == STEPS, what="all steps shown")
        account = take_account(view)
        funnel = {(row[0], row[2]): row[1] for row in view.query("SELECT stage, count, reason FROM funnel").rows}
        versions = view.query("SELECT DISTINCT policy_version FROM triplets ORDER BY 1").rows
        view.close()
    assert reports[-1].outcome is StepOutcome.MEASURED, "validated after the last step"
    validations = [report.step for report in reports if "validation/reward_mean" in report.metrics]
    assert validations == [1, STEPS, STEPS]
    reports = reports[:-1]
    rewards = [report.mean_reward for report in reports]
    print([round(reward, 2) for reward in rewards])
    assert [report.step for report in reports] == list(range(1, STEPS + 1))
    assert sum(rewards[-3:]) / 3 > sum(rewards[:3]) / 3 + 0.2, rewards
    updated = [report for report in reports if report.outcome is StepOutcome.UPDATED]
    assert updated
    assert all(report.logprob_diff_max < LOGPROB_DIFF_MAX for report in updated)
    assert all(report.rollouts == report.rows == GROUPS * SAMPLES for report in reports)
    sampled_by = {row[0] for row in versions}
    assert sampled_by <= set(range(len(updated) + 1)), "each step was sampled by the policy before it"
    assert sampled_by >= set(range(len(updated)))
    consumed, validated = STEPS * GROUPS * SAMPLES, funnel["finished rollouts not trained", "not_for_training"]
    trained = funnel["rollouts trained", ""]
    without_signal = funnel.get(("finished rollouts not trained", "no_signal"), 0)
    assert validated > 0
    assert trained > 0
    assert trained + without_signal == consumed
    assert funnel == {  # each rollout is one attempt with one call
        ("rollouts enqueued", ""): consumed + validated,
        ("rollouts succeeded", ""): consumed + validated,
        ("attempts", ""): consumed + validated,
        ("LLM calls made", ""): consumed + validated,
        ("LLM calls pending", ""): 0,
        ("LLM calls in triplets", ""): consumed + validated,
        ("final trajectories", ""): consumed + validated,
        ("final trajectories with a reward", ""): consumed + validated,
        ("trajectories consumed", ""): consumed,
        ("rollouts trained", ""): trained,
        ("finished rollouts not trained", "not_for_training"): validated,
        **({("finished rollouts not trained", "no_signal"): without_signal} if without_signal else {}),
    }
    assert account.calls["balanced"], account.calls
    assert account.training["balanced"], account.training
    assert account.dead_letters == 0
