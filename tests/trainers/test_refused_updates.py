"""An update that would learn something wrong, or nothing, is an outcome with a cause; weights and optimiser stay."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import TrainingError
from lightstream.schemas.records import StepOutcome, Trajectory
from lightstream.trainers import VERL
from lightstream.trainers.algorithms.recorded import recorded_context
from lightstream.trainers.engines.verl.engine import VerlEngine
from lightstream.trainers.engines.verl.state import whole
from lightstream.trainers.ledger import MemoryLedger
from lightstream.trainers.loop.protocols import NothingLearned
from lightstream.trainers.rollouts.batch import BatchArrays, Scoring, build_arrays, select_rows
from lightstream.trainers.rollouts.groups import Group
from lightstream.trainers.run.model.tiny_model import make_tiny_model

from .support.trajectories import make_trajectory, make_triplet, random_trajectory


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("refused") / "model")


def options(model: Path, **changes: Any) -> VERL:
    base: dict[str, Any] = {"model": model, "steps": 8, "learning_rate": 1e-3, "device": "cpu", "threads": 1}
    return VERL(**(base | changes))


def arrays(name: str = "g", rewards: tuple[float, ...] = (1.0, 0.0), scoring: Scoring | None = None) -> BatchArrays:
    """A group whose log-probabilities are made up: about as a tiny model's."""
    members = [
        make_trajectory(f"{name}-{i}", reward=reward, triplets=[make_triplet([7, 8], [20 + i, 30], [-5.6, -5.6])])
        for i, reward in enumerate(rewards)
    ]
    return build_arrays(select_rows([Group(name, tuple(members))], scoring=scoring))


def weights(engine: VerlEngine) -> dict[str, Any]:
    for part in engine.module.modules():  # after a pass without gradients, FSDP2 has other tensors there
        if hasattr(part, "reshard"):
            part.reshard()
    return {name: whole(parameter.detach()).clone() for name, parameter in engine.module.named_parameters()}


def assert_unchanged(engine: VerlEngine, before: dict[str, Any]) -> None:
    assert all(bool((weights(engine)[name] == value).all()) for name, value in before.items())
    assert all(p.grad is None or not p.grad.any() for p in engine.module.parameters())


@pytest.mark.parametrize("changes", [{}, {"mini_batches_per_step": 2}, {"epochs_per_step": 2}, {"steps_ahead": 1}])
def test_a_gap_above_the_bound_changes_nothing_and_says_how_large_it_is(model: Path, changes: dict[str, Any]) -> None:
    engine = VerlEngine(options(model, **changes), model)
    before = weights(engine)
    with pytest.raises(NothingLearned, match=r"logprob_diff_max may be 0\.001") as refused:
        engine.update(arrays(), policy_version=0, gap_max=1e-3)
    assert refused.value.reason.value == "logprob_gap"
    assert refused.value.metrics["logprob_diff_max"] > 1e-3
    assert_unchanged(engine, before)
    again = VerlEngine(options(model, **changes), model)
    found, expected = engine.update(arrays(), step=2), again.update(arrays(), step=2)
    assert found == expected, "the next update is that of an engine which saw no other"
    assert all(bool((weights(again)[name] == value).all()) for name, value in weights(engine).items())


def test_tokens_of_an_older_version_are_not_compared(model: Path) -> None:
    engine = VerlEngine(options(model), model)
    assert engine.update(arrays(), policy_version=1, gap_max=1e-3)["grad_norm"] > 0


@pytest.mark.parametrize("changes", [{}, {"mini_batches_per_step": 2}])
def test_a_gradient_that_is_not_finite_changes_nothing(model: Path, changes: dict[str, Any]) -> None:
    engine = VerlEngine(options(model, advantage="group_mean", **changes), model)
    before = weights(engine)
    with pytest.raises(NothingLearned, match="not finite; the largest advantage of a token is 1e\\+30") as refused:
        engine.update(arrays(rewards=(2e30, 0.0), scoring=Scoring(advantage="group_mean")))
    assert refused.value.reason.value == "not_finite"
    assert_unchanged(engine, before)


def test_schedules_go_by_the_number_of_the_step(model: Path) -> None:
    """Steps 2 and 3 changed nothing: the rate of step 4 is that of a run in which they did."""
    config = options(model, lr_warmup_steps=3, lr_schedule="cosine")
    whole, gaps = VerlEngine(config, model), VerlEngine(config, model)
    rates = [whole.update(arrays(), step=step)["lr"] for step in range(1, 6)]
    assert len(set(rates)) > 3
    assert [gaps.update(arrays(), step=step)["lr"] for step in (1, 4, 5)] == [rates[0], rates[3], rates[4]]


def trained(log: list[Trajectory], folder: Path, **changes: Any) -> tuple[MemoryLedger, list[str]]:
    ledger, said = MemoryLedger(trainer_id="run", run_id="run"), list[str]()
    from lightstream.trainers.run.progress import Progress

    context = recorded_context(
        log,
        settings=Settings.load(data_dir=folder),
        ledger=ledger,
        history=ledger.open(),
        run_id="run",
        progress=Progress(said.append),
    )
    verl = options(make_tiny_model(folder / "model"), tasks_per_step=1, rollouts_per_task=4, **changes)
    with pytest.raises(TrainingError) as ended:
        verl.run(context)
    return ledger, [*said, str(ended.value)]


def test_a_step_with_a_gap_is_discarded_with_its_cause_and_ends_the_run_by_name(tmp_path: Path) -> None:
    log = [
        random_trajectory(
            f"run-s1{again}-g0-{i}", group_id=f"run-s1{again}-g0", group_size=4, run_id="run", policy_version=0
        )
        for again in ("", "r1", "r2")
        for i in range(4)
    ]
    ledger, said = trained(log, tmp_path, advantage="reinforce")
    assert [step.outcome for step in ledger.steps] == [StepOutcome.DISCARDED] * 3
    assert all("log-probabilities of actor and model server differ" in step.cause for step in ledger.steps)
    assert all(
        c.not_trained.get("logprob_gap", 0) + c.not_trained.get("no_signal", 0) for c in ledger.steps[0].consumed
    )
    assert sum(c.triplet_count for c in ledger.steps[0].consumed) == 0
    assert ledger.resources[-1].version == 0, "nothing was published"
    assert "same temperature" in said[-1]
    assert math.isfinite(ledger.steps[0].metrics["logprob_diff_max"])
