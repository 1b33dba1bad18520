"""Groups that never complete: each is waited for as long as its own rollouts may take, skipped, and accounted for."""

from __future__ import annotations

import itertools
import math
import threading
from pathlib import Path
from typing import Any

import pytest

from lightstream.runtime.kafka import KafkaPublisher, PartitionReader, partitions_of
from lightstream.runtime.schema_registry import codec_for
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import TrainingError
from lightstream.schemas.records import StepOutcome, TrainingStep
from lightstream.schemas.topics import TRAINING_STEPS, TRAJECTORIES
from lightstream.schemas.types import EnqueueRolloutRequest, RolloutConfig
from lightstream.trainers import VERL, AlgorithmContext, StepReport, Trainer, make_tiny_model
from lightstream.trainers.ledger.reading import read_topic
from lightstream.trainers.rollouts.groups import deadlines
from lightstream.trainers.rollouts.rollouts import CollectError

from .support.instant_store import InstantStore
from .support.trajectories import make_trajectory

ROLLOUT_S = 0.1


@pytest.fixture
def impatient(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A group's time is over as soon as what is in the log is read: nothing here depends on how fast that is."""
    monkeypatch.setattr(deadlines, "STALL_MARGIN_S", -ROLLOUT_S)
    return settings.model_copy(update={"proxy_url": "http://127.0.0.1:9"})  # nobody calls it


def fit(algorithm: Any, store: InstantStore, tasks: list[str], val_tasks: list[str] | None = None) -> list[StepReport]:
    reports: list[StepReport] = []
    Trainer(
        algorithm=algorithm,
        n_runners=0,
        settings=store.settings,
        store=store,
        trainer_id="trainer",
        observers=[reports.append],
        rollout_config=RolloutConfig(timeout_seconds=ROLLOUT_S),
    ).fit(None, tasks, val_tasks)
    return reports


def committed(settings: Settings) -> list[TrainingStep]:
    records = read_topic(settings, TRAINING_STEPS, codec_for(settings), group_id="test")
    return [record for _, record in records if isinstance(record, TrainingStep)]


def end_offsets(settings: Settings) -> dict[int, int]:
    return {
        partition: PartitionReader(settings, TRAJECTORIES, partition, group_id="test").watermarks()[1]
        for partition in partitions_of(settings, TRAJECTORIES)
    }


def low_water(step: TrainingStep) -> dict[int, int]:
    return {position.partition: position.offset for position in step.low_water}


def make_step(context: AlgorithmContext) -> list[str]:
    """One step of three groups of three; the groups that were complete."""
    step, started = context.last_step + 1, context.now()
    groups = context.collect(context.enqueue_step(step, tasks=3, rollouts_per_task=3))
    context.commit(step, groups, started_unix_nano=started)
    return [group.group_id for group in groups]


def test_a_run_goes_on_without_the_groups_that_do_not_complete(
    impatient: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    deaf = ["trainer-s1-g0-1", *(f"trainer-s1-g1-{sample}" for sample in range(3))]
    complete: list[str] = []
    (report,) = fit(lambda context: complete.extend(make_step(context)), InstantStore(impatient, deaf), ["a", "b", "c"])
    assert complete == ["trainer-s1-g2"]
    (step,) = committed(impatient)
    assert step.skipped_groups == ["trainer-s1-g0", "trainer-s1-g1"]
    assert step.metrics["groups/skipped"] == report.metrics["groups/skipped"] == 2
    assert {c.rollout_id: (c.triplet_count, c.not_trained) for c in step.consumed if c.group_id != "trainer-s1-g2"} == {
        "trainer-s1-g0-0": (0, {"group_skipped": 1}),
        "trainer-s1-g0-2": (0, {"group_skipped": 1}),
    }
    assert all(c.triplet_count for c in step.consumed if c.group_id == "trainer-s1-g2")
    assert low_water(step) == end_offsets(impatient), "nothing is kept waiting for"
    said = capsys.readouterr().out
    assert "Group trainer-s1-g0 is skipped: 2 of 3 rollouts came within " in said
    assert "Group trainer-s1-g1 is skipped: 0 of 3 rollouts came within " in said


def test_a_restart_does_not_wait_again_and_what_comes_late_is_not_trained(impatient: Settings) -> None:
    late = EnqueueRolloutRequest(
        input="a", rollout_id="trainer-s1-g0-1", group_id="trainer-s1-g0", group_size=3, run_id="trainer"
    )
    tasks = ["a", "b", "c"]
    deaf = ["trainer-s1-g0-1", *(f"trainer-s1-g1-{sample}" for sample in range(3))]
    fit(lambda context: make_step(context), InstantStore(impatient, deaf), tasks)

    def go_on(context: AlgorithmContext) -> None:
        assert context.enqueue_step(1, tasks=3, rollouts_per_task=3) == [], "each is consumed or skipped"
        store.publish(late)
        assert make_step(context) == ["trainer-s2-g0", "trainer-s2-g1"]

    store = InstantStore(impatient, [f"trainer-s2-g2-{sample}" for sample in range(3)])
    fit(lambda context: go_on(context), store, tasks)
    first, second = committed(impatient)
    assert "trainer-s1-g0-1" not in {c.rollout_id for c in first.consumed}
    assert [(c.triplet_count, c.not_trained) for c in second.consumed if c.rollout_id == "trainer-s1-g0-1"] == [
        (0, {"group_skipped": 1})
    ]
    assert second.skipped_groups == ["trainer-s2-g2"], "a group is skipped once"
    assert low_water(second) == end_offsets(impatient)


def test_what_lay_in_the_log_unread_has_come(impatient: Settings) -> None:
    """As after an update that takes longer than rollouts may: their time is over before the first is read."""
    assert fit(lambda context: make_step(context), InstantStore(impatient), ["a"])[0].rollouts == 9


def test_collect_fails_where_nothing_completes_and_a_restart_asks_again(impatient: Settings) -> None:
    deaf = [f"trainer-s1-g{group}-0" for group in range(3)]
    with pytest.raises(CollectError, match="none of 3 groups is complete"):
        fit(make_step, InstantStore(impatient, deaf), ["a"])
    assert committed(impatient) == []
    assert fit(make_step, InstantStore(impatient), ["a"])[0].rollouts == 9


def test_other_runs_do_not_keep_a_group_waiting(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "STALL_MARGIN_S", 0.5)
    started, stop = threading.Event(), threading.Event()

    def others() -> None:  # of an older writer, so that each has to be decoded
        publisher = KafkaPublisher(settings)
        for number in itertools.count():
            other = make_trajectory(f"other-{number}", group_id="trainer-s1-g0", run_id="other")
            publisher.publish(TRAJECTORIES, "other", other).result(300)
            started.set()
            if stop.wait(0.01):
                break
        publisher.close()

    def wait(context: AlgorithmContext) -> None:
        started.wait(300)
        make_step(context)

    thread = threading.Thread(target=others)
    thread.start()
    try:
        with pytest.raises(CollectError):
            fit(wait, InstantStore(settings, [f"trainer-s1-g{group}-0" for group in range(3)]), ["a"])
        assert thread.is_alive(), "the other run goes on meanwhile"
    finally:
        stop.set()
        thread.join()


def verl_of(tmp_path: Path, **changes: Any) -> VERL:
    base: dict[str, Any] = {
        "model": make_tiny_model(tmp_path / "model"),
        "steps": 1,
        "tasks_per_step": 1,
        "rollouts_per_task": 2,
        "device": "cpu",
        "threads": 1,
        "logprob_gap_max": math.inf,  # no model has sampled what it trains on
    }
    return VERL(**(base | changes))


def test_verl_discards_a_step_of_which_every_group_is_skipped(impatient: Settings, tmp_path: Path) -> None:
    verl = verl_of(tmp_path)
    deaf = ["trainer-s1-g0-1", "trainer-s1r1-g0-0", "trainer-s1r1-g0-1", "trainer-s1r2-g0-0"]
    with pytest.raises(
        TrainingError, match=r"in 3 tries of step 1; no group was complete in time\. .*`lightstream status`"
    ):
        fit(verl, InstantStore(impatient, deaf), ["a"])
    steps = committed(impatient)
    assert [step.outcome for step in steps] == [StepOutcome.DISCARDED] * 3
    assert [step.skipped_groups for step in steps] == [["trainer-s1-g0"], ["trainer-s1r1-g0"], ["trainer-s1r2-g0"]]
    assert [len(step.consumed) for step in steps] == [1, 0, 1]
    # After the fix, the same command goes on with new rollouts of the same step.
    store = InstantStore(impatient)
    fit(verl, store, ["a"])
    assert store.asked == ["trainer-s1r3-g0-0", "trainer-s1r3-g0-1"]


def test_verl_with_steps_ahead_does_not_wait_again_after_a_restart(impatient: Settings, tmp_path: Path) -> None:
    verl = {"tasks_per_step": 2, "steps_ahead": 1}
    deaf = ["trainer-s1-g0-0", "trainer-s1-g0-1"]
    fit(verl_of(tmp_path, steps=2, **verl), InstantStore(impatient, deaf), ["a", "b"])
    skipped = [name for step in committed(impatient) for name in step.skipped_groups]
    assert skipped == ["trainer-s1-g0"]
    store = InstantStore(impatient, deaf)
    fit(verl_of(tmp_path, steps=3, **verl), store, ["a", "b"])
    assert {name.rpartition("-")[0] for name in store.asked} == {"trainer-s3-g0", "trainer-s3-g1"}
    trained = [c.rollout_id for step in committed(impatient) for c in step.consumed if not c.not_trained]
    assert len(trained) == len(set(trained))


def test_a_validation_task_that_never_ends_is_left_out(impatient: Settings, tmp_path: Path) -> None:
    verl = verl_of(tmp_path, validate_every=1, validation_samples=2)
    before, after = fit(verl, InstantStore(impatient, ["trainer-v0-g1-1"]), ["a"], ["b", "c", "d"])
    assert (before.metrics["validation/tasks"], before.metrics["validation/groups_skipped"]) == (2, 1)
    assert after.metrics["validation/tasks"] == 3
    assert "validation/groups_skipped" not in after.metrics
    assert low_water(committed(impatient)[-1]) == end_offsets(impatient), "nothing is kept waiting for"
