"""The tiny model trains in environments of three kinds, and the log knows of which task sets."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from lightstream.schemas.errors import TrainingError
from lightstream.store_views.client import ViewClient
from lightstream.trainers import VERL, Trainer, make_tiny_model
from lightstream.trainers.environments import by_difficulty
from lightstream.trainers.environments.difficulty import rates_of_view
from lightstream.trainers.environments.named import named_environment
from lightstream.trainers.run.tasks import TasksOfStep
from lightstream.up import Stack
from tests.support.forked import run_forked
from tests.support.program import COMMAND
from tests.support.topics import settings_on
from tests.support.waiting import eventually
from tests.trainers.environments.support import task_folder

STEPS, GROUPS, SAMPLES = 2, 2, 4
TIMEOUT_S = 1500.0


def test_the_tiny_model_trains_in_three_kinds_of_environments(kafka_servers: str, tmp_path: Path) -> None:
    tests = "echo $(($(wc -c < /app/answer.txt) % 2)) > /logs/verifier/reward.txt"
    for number in range(3):
        task_folder(tmp_path / "tasks", f"say-{number}", f"Say {number}.", tests)
    model = make_tiny_model(tmp_path / "model")
    with Stack(settings_on(kafka_servers, tmp_path), services=("worker", "view", "policy", "proxy")) as stack:
        algorithm = VERL(
            model=model,
            steps=STEPS,
            tasks_per_step=GROUPS,
            rollouts_per_task=SAMPLES,
            threads=1,
            sampling_parameters={"max_tokens": 4},
        )
        environments = {
            "gym": named_environment("reasoning-gym:chain_sum", {"size": 6}),
            "lake": named_environment(
                "gymnasium:FrozenLake-v1", {"episodes": 6, "turns_max": 2, "render_mode": "ansi"}
            ),
        }
        for run_id, environment in environments.items():
            tasks = by_difficulty(environment.train, settings=stack.settings)
            Trainer(algorithm=algorithm, settings=stack.settings, trainer_id=run_id).fit(environment, tasks)
        # The third by the command line.
        sets = {"model": model, "steps": STEPS, "tasks_per_step": GROUPS, "rollouts_per_task": SAMPLES, "threads": 1}
        flags = [text for name, value in sets.items() for text in ("--set", f"{name}={value}")]
        done = run_forked(
            [*COMMAND[1:], "train", "--env", "folder:tasks", *flags, "--set", 'sampling_parameters={"max_tokens": 4}'],
            os.environ | stack.settings.to_environment(),
            tmp_path,
            TIMEOUT_S,
        )
        assert (done.returncode, done.stderr) == (0, "")
        view = ViewClient(stack.settings)
        made = "SELECT run_id, count(*) FROM training_steps GROUP BY run_id ORDER BY run_id"
        expected = [("folder-tasks", STEPS), ("gym", STEPS), ("lake", STEPS)]
        eventually(lambda: [tuple(row) for row in view.query(made).rows] == expected, what="all steps are shown")
        noted = view.query("SELECT run_id, status, metadata_json FROM rollouts", "now").rows
        rewarded = view.query("SELECT run_id, count(reward) FROM consumed GROUP BY run_id ORDER BY run_id").rows
        wanted = TasksOfStep(run_id="gym", seed=0, step=STEPS + 1, count=1, known_step=STEPS)
        rates = rates_of_view(stack.settings, environments["gym"].train, wanted)
        view.close()
        changed = named_environment("reasoning-gym:chain_sum", {"size": 7})
        again = Trainer(algorithm=algorithm, settings=stack.settings, trainer_id="gym")
        with pytest.raises(TrainingError, match="begun with something else") as raised:
            again.fit(changed, changed.train)
    rollouts = STEPS * GROUPS * SAMPLES
    assert {status for _, status, _ in noted} == {"succeeded"}
    for run_id, environment in environments.items():
        kept = [json.loads(text)["task"] for run, _, text in noted if run == run_id]
        assert len(kept) == rollouts
        assert {(task["set"], task["digest"]) for task in kept} == {(environment.name, environment.digest)}
    assert {json.loads(text)["task"]["set"] for run, _, text in noted if run == "folder-tasks"} == {"folder:tasks"}
    assert [tuple(row) for row in rewarded] == [(run_id, rollouts) for run_id, _ in expected]
    assert sum(rate.rollouts for rate in rates.values()) == rollouts
    assert environments["gym"].digest[:12] in str(raised.value)
    assert changed.digest[:12] in str(raised.value)
