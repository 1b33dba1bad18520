"""Agent Lightning's calc_x and spider, of which one import differs: small, and trained through the whole system."""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import lightstream.agl as agl
from lightstream.runtime.settings import Settings
from lightstream.store_views.client import ViewClient
from lightstream.trainers import make_tiny_model
from lightstream.up import Stack
from tests.e2e.agl_training_agents import QueryAgent, calculate
from tests.entrypoints.test_agl_configurations import nested, values_of
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
SMALL: dict[str, Any] = {
    "data.train_batch_size": 2,
    "actor_rollout_ref.actor.ppo_mini_batch_size": 2,
    "trainer.total_training_steps": 2,
    "trainer.test_freq": 1,
}
TASKS = [{"question": f"{number} + {number}?"} for number in range(4)]


STEPS = "SELECT trainer_id, step, outcome FROM training_steps ORDER BY ALL"
CALLS = "SELECT run_id, mode, count(*) FROM triplets GROUP BY ALL ORDER BY ALL"


def rows_of(view: ViewClient, query: str, run: str) -> list[tuple[Any, ...]]:
    """Of a query whose first column is the run."""
    return [tuple(row[1:]) for row in view.query(query, "now").rows if row[0] == run]


def has_steps(view: ViewClient, run: str) -> bool:
    """Two, and the measurement behind the last."""
    return len(rows_of(view, STEPS, run)) == 3


@pytest.fixture
def stack(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT)  # where Runner processes find the agents
    with Stack(settings, services=("worker", "view", "policy", "proxy")) as stack:
        for name, value in stack.settings.to_environment().items():
            monkeypatch.setenv(name, value)
        yield stack


def test_programs_written_for_agent_lightning_train(stack: Stack, tmp_path: Path) -> None:
    model = str(make_tiny_model(tmp_path / "model"))
    view = ViewClient(stack.settings)
    parts: dict[str, Any] = {"tracer": agl.OtelTracer(), "adapter": agl.LlmProxyTraceToTriplet()}
    for name, agent, given in (("calc_x", calculate, parts), ("spider", QueryAgent(), {})):
        config = nested(copy.deepcopy(values_of(name)) | SMALL | {"actor_rollout_ref.model.path": model})
        trainer = agl.Trainer(algorithm=agl.VERL(config), n_runners=1, trainer_id=name, **given)
        trainer.fit(agent, train_dataset=TASKS, val_dataset=TASKS[:2])
        eventually(partial(has_steps, view, name), what="all steps are shown")
        assert [step for step, outcome in rows_of(view, STEPS, name) if outcome != "measured"] == [1, 2]
        turns = 1 if name == "calc_x" else 2
        assert rows_of(view, CALLS, name) == [("train", 16 * turns), ("val", 6 * turns)]
    view.close()
