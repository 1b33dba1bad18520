"""An agent learns with a real vLLM as its model server, which the training starts and ends. ``make test-vllm``."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from examples.watch import take_account
from lightstream.runtime.services import find
from lightstream.runtime.settings import Settings
from lightstream.schemas.records import StepOutcome
from lightstream.store_views.client import ViewClient
from lightstream.trainers import VERL, StepReport, Trainer, make_tiny_model, teach_answers
from lightstream.up import Stack
from tests.support.digits import digit_tasks, say_digit
from tests.trainers.vllm_servers.vllm import OPTIONS

pytestmark = pytest.mark.vllm

STEPS, GROUPS, SAMPLES = 8, 4, 8
LOGPROB_DIFF_MAX = 2e-3
ROOT = Path(__file__).parents[2]


def test_an_agent_learns_with_vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)  # where Runner processes find the agent
    reports: list[StepReport] = []
    settings = Settings.load(data_dir=tmp_path, topic_partitions=2, policy_port=0)
    with Stack(settings, services=("worker", "view", "proxy")) as stack:
        trainer = Trainer(
            algorithm=VERL(
                model=make_tiny_model(tmp_path / "model"),
                warm_up=teach_answers(["say 0"], ["0", "1", "2", "3"], steps=20, end_turn=False),
                servers=OPTIONS,
                steps=STEPS,
                tasks_per_step=GROUPS,
                rollouts_per_task=SAMPLES,
                learning_rate=1e-2,
                weight_decay=0.0,
                sampling_parameters={"max_tokens": 1},
                threads=1,
            ),
            settings=stack.settings,
            trainer_id="digits",
            n_runners=1,
            runner_concurrency=GROUPS * SAMPLES,
            observers=[reports.append],
        )
        trainer.fit(say_digit, digit_tasks(1))
        assert find(stack.settings, "policy") is None
        lines = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
        assert not [line for line in lines if str(tmp_path) in line and "vllm.entrypoints" in line], "vLLM has ended"
        view = ViewClient(stack.settings)
        account = take_account(view)
        versions = {row[0] for row in view.query("SELECT DISTINCT policy_version FROM triplets").rows}
        view.close()
    rewards = [report.mean_reward for report in reports]
    assert sum(rewards[-3:]) / 3 > sum(rewards[:3]) / 3 + 0.2, rewards
    updated = [report for report in reports if report.outcome is StepOutcome.UPDATED]
    assert all(report.logprob_diff_max < LOGPROB_DIFF_MAX for report in updated)
    assert versions <= set(range(len(updated) + 1)), "each step was sampled by the policy before it"
    assert versions >= set(range(len(updated)))
    assert account.is_balanced
