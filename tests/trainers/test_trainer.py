"""Trainer.fit with algorithms of one's own, and VERL's odd steps, on a real Kafka with instant rollouts."""

from __future__ import annotations

from pathlib import Path

import pytest

from lightstream.schemas.codec import Codec
from lightstream.schemas.errors import TrainingError
from lightstream.schemas.large_records import large_records_folder, put_aside
from lightstream.schemas.records import Trajectory
from lightstream.schemas.settings import Settings
from lightstream.schemas.types import EnqueueRolloutRequest, PromptTemplate, RolloutConfig
from lightstream.trainers import VERL, AlgorithmContext, StepReport, Trainer, algo, make_tiny_model
from lightstream.trainers.algorithm import CollectError
from lightstream.trainers.algorithm import context as context_module

from .support.instant_store import InstantStore


class WithoutReward(InstantStore):
    """Nobody rewards anything."""

    def trajectory(self, request: EnqueueRolloutRequest) -> Trajectory:
        made = super().trajectory(request)
        bare = [triplet.model_copy(update={"reward": None}) for triplet in made.triplets]
        return made.model_copy(update={"reward": None, "triplets": bare})


class ByAddress(InstantStore):
    """Every trajectory is too large for a record."""

    def trajectory(self, request: EnqueueRolloutRequest) -> Trajectory:
        folder = large_records_folder(self.settings)
        assert folder is not None
        head = put_aside(super().trajectory(request), Codec(), folder)
        assert head.triplets == []
        return head


class Deaf(InstantStore):
    """Takes rollouts and does nothing with them."""

    async def enqueue_many_rollouts(self, rollouts: object) -> list[object]:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]  # refuses to work
        return []


def trainer_of(settings: Settings, algorithm: object, store: InstantStore, reports: list[StepReport]) -> Trainer:
    return Trainer(
        algorithm=algorithm,  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # any of the forms
        n_runners=0,
        settings=settings,
        store=store,
        observers=[reports.append],
        rollout_config=RolloutConfig(timeout_seconds=0.1),
    )


def test_a_function_trains_and_goes_on_where_it_was(settings: Settings) -> None:
    seen: list[str] = []

    def run(context: AlgorithmContext, steps: int) -> None:
        for step in range(context.last_step + 1, steps + 1):
            started = context.now()
            groups = context.collect(context.enqueue_step(step, tasks=2, rollouts_per_task=3))
            seen.extend(t.rollout_id for group in groups for t in group.trajectories)
            prompt = PromptTemplate(template=f"version {step}: {{task}}")
            record = context.resources_record(step, {"prompt": prompt})
            context.commit(step, groups, started_unix_nano=started, metrics={"tried": 2.0}, resources=record)

    reports: list[StepReport] = []
    tasks = ["a", "b", "c"]
    trainer_of(settings, algo(lambda context: run(context, 2)), InstantStore(settings), reports).fit(None, tasks)
    trainer_of(settings, lambda context: run(context, 3), InstantStore(settings), reports).fit(None, tasks)
    assert [report.step for report in reports] == [1, 2, 3]
    assert [report.resources_id for report in reports] == [f"trainer-v{step}" for step in (1, 2, 3)]
    assert reports[0].metrics["tried"] == 2.0
    assert len(seen) == len(set(seen)) == 3 * 2 * 3


def test_a_step_must_follow_the_last_one(settings: Settings) -> None:
    def skip(context: AlgorithmContext) -> None:
        context.commit(2, [], started_unix_nano=context.now())

    with pytest.raises(TrainingError, match="step 2 cannot follow step 0"):
        trainer_of(settings, skip, InstantStore(settings), []).fit(None, ["task"])


def test_rollouts_that_never_end_are_an_error(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context_module, "STALL_MARGIN_S", 0.5)

    def wait(context: AlgorithmContext) -> None:
        context.collect(context.enqueue_step(1, tasks=1, rollouts_per_task=2))

    with pytest.raises(CollectError, match=r"1 groups are not complete: trainer-s1-g0 \(0 here\)"):
        trainer_of(settings, wait, Deaf(settings), []).fit(None, ["task"])


def test_trajectories_that_came_by_address_are_trained_on(settings: Settings, tmp_path: Path) -> None:
    settings = settings.model_copy(
        update={"proxy_url": "http://127.0.0.1:9", "large_records_dir": settings.data_dir / "large"}
    )
    verl = VERL(
        model=make_tiny_model(tmp_path / "model"),
        steps=1,
        tasks_per_step=2,
        rollouts_per_task=4,
        device="cpu",
        threads=1,
        keep_checkpoints=5,
    )
    reports: list[StepReport] = []
    trainer_of(settings, verl, ByAddress(settings), reports).fit(None, ["task"])
    (report,) = reports
    assert report.rollouts == 8
    assert report.rows >= 8, "each has a call at least"
    before, after = sorted((settings.data_dir / "checkpoints" / "trainer").iterdir())
    assert (before / "model.safetensors").read_bytes() != (after / "model.safetensors").read_bytes(), "it learned"


def test_a_step_without_anything_to_learn_is_consumed_without_an_update(settings: Settings, tmp_path: Path) -> None:
    settings = settings.model_copy(update={"proxy_url": "http://127.0.0.1:9"})
    reports: list[StepReport] = []
    verl = VERL(
        model=make_tiny_model(tmp_path / "model"),
        steps=2,
        tasks_per_step=1,
        rollouts_per_task=2,
        device="cpu",
        threads=1,
        keep_checkpoints=5,
    )
    trainer_of(settings, verl, WithoutReward(settings), reports).fit(None, ["task"])
    assert [report.rows for report in reports] == [0, 0]
    assert [report.rollouts for report in reports] == [2, 2], "consumed all the same"
    assert reports[0].metrics["rollouts/without_reward"] == 2
    assert reports[0].metrics["batch/excluded_no_reward"] >= 2
    folders = sorted((settings.data_dir / "checkpoints" / "trainer").iterdir())
    assert len(folders) == 3
    assert len({(folder / "model.safetensors").read_bytes() for folder in folders}) == 1
