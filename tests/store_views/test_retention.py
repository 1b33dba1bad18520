"""Old rollouts leave the view whole; nothing leaves that is open, young, kept by its run or awaited by a training."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import pytest

from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError
from lightstream.schemas.examples import example_of
from lightstream.schemas.records import (
    DeadLetter,
    EventKind,
    Record,
    ResourcesRecord,
    RolloutEvent,
    RolloutMode,
    RolloutState,
    RolloutStatus,
    SpanRecord,
    TrainingStep,
    WorkerHeartbeat,
)
from lightstream.store_views.materialiser import retention as retention_module
from lightstream.store_views.materialiser.retention import Retention, delete_old_rows
from tests.store_views.log_file import LogFile
from tests.store_views.test_deletions import content, records_of

DAY_S = 86_400.0
DAY = 86_400 * 10**9
NOW = 1_000 * DAY


class DatedLog(LogFile):
    """A log in which each record has a day."""

    def write_on(self, day: int, *records: Record) -> None:
        for record in records:
            self._log(record)
        for kind, logged in self._uncommitted.items():
            self._uncommitted[kind] = [dataclasses.replace(one, logged_unix_nano=day * DAY) for one in logged]
        self._commit()

    def retain(self, retention: Retention) -> None:
        while self.database.remove(lambda connection: delete_old_rows(connection, retention, NOW)):
            pass


def days(keep: float | None = 30, **runs: float | None) -> Retention:
    return Retention(
        None if keep is None else keep * DAY_S,
        {run: None if age is None else age * DAY_S for run, age in runs.items()},
    )


def finished(run: str, number: int, day: int) -> list[Record]:
    """All that one trained rollout leaves in the log, on that day."""
    found: list[Record] = []
    for record in records_of(run, number=number):
        if isinstance(record, RolloutState):
            record = record.model_copy(update={"updated_unix_nano": day * DAY, "ended_unix_nano": day * DAY})
        found.append(record)
    return found


def state(rollout: str, day: int, **changes: Any) -> RolloutState:
    of_rollout = {"rollout_id": rollout, "run_id": "run", "mode": RolloutMode.TRAIN, "group_id": None, "group_size": 1}
    of_rollout |= {name: changes.pop(name) for name in [*changes] if name in of_rollout}
    spec = example_of(RolloutState).rollout.model_copy(update=of_rollout)
    ended = {"status": RolloutStatus.SUCCEEDED, "updated_unix_nano": day * DAY, "ended_unix_nano": day * DAY}
    return example_of(RolloutState).model_copy(update={"rollout": spec} | ended | changes)


def step(day: int, *consumed: str, run: str = "run", skipped: tuple[str, ...] = ()) -> TrainingStep:
    one = example_of(TrainingStep).consumed[0]
    rows = [one.model_copy(update={"rollout_id": rollout, "group_id": rollout}) for rollout in consumed]
    return example_of(TrainingStep).model_copy(
        update={"run_id": run, "trainer_id": run, "step": day, "consumed": rows, "skipped_groups": list(skipped)}
    )


@pytest.fixture
def log(tmp_path: Path) -> Any:
    log = DatedLog(tmp_path / "view")
    yield log
    log.database.close()


def left(log: LogFile, table: str = "rollouts") -> list[str]:
    return sorted(rollout for (rollout,) in log.rows(f"SELECT rollout_id FROM {table}"))  # noqa: S608  # ours


@pytest.mark.parametrize("per_pass", [20_000, 1])
def test_what_is_left_is_what_a_view_has_that_never_saw_the_old(
    tmp_path: Path, log: DatedLog, per_pass: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention_module, "ROLLOUTS_PER_PASS", per_pass)
    never = DatedLog(tmp_path / "never")
    moments = [(run, number, day) for run in ("a", "b") for number, day in enumerate((10, 900, 969, 971, 999))]
    random.Random(7).shuffle(moments)
    for run, number, day in moments:
        records = finished(run, number, day)
        log.write_on(day, *records)
        steps = [one.model_copy(update={"consumed": []}) for one in records if isinstance(one, TrainingStep)]
        made = [one for one in records if isinstance(one, ResourcesRecord)]
        kept = records if day > 970 else [*made, *steps]  # of a run that goes on
        never.write_on(day, *kept)
    assert content(log) != content(never)

    log.retain(days(30))

    assert content(log) == content(never)
    assert left(log) == ["a/3-rollout", "a/4-rollout", "b/3-rollout", "b/4-rollout"]
    late = finished("a", 9, 999)
    for each in (log, never):
        each.write_on(999, *late)
    assert content(log) == content(never)
    never.database.close()


def test_a_whole_run_leaves_with_its_steps_and_resources(log: DatedLog) -> None:
    log.write_on(10, *finished("old", 0, 10))
    log.write_on(999, *finished("young", 0, 999))
    log.retain(days(30))
    for table in ("training_steps_raw", "resources_raw", "consumed_raw", "run_trained", "run_calls", "run_rewards"):
        assert log.rows(f"SELECT DISTINCT run_id FROM {table}") == [("young",)], table  # noqa: S608  # ours
    assert log.rows("SELECT run_id FROM runs") == [("young",)]


def test_each_run_is_kept_as_long_as_its_name_says(log: DatedLog) -> None:
    for run in ("best", "scratch-1", "scratch", "other"):
        log.write_on(980, *finished(run, 0, 980))
    log.retain(days(None, best=None, **{"scratch-*": 10}))
    assert left(log) == ["best/0-rollout", "other/0-rollout", "scratch/0-rollout"]
    log.retain(days(5, best=None, **{"*": 15}))
    assert left(log) == ["best/0-rollout"]


def test_what_is_open_or_of_an_open_group_stays(log: DatedLog) -> None:
    over, running = RolloutStatus.SUCCEEDED, RolloutStatus.RUNNING
    log.write_on(
        1,
        state("open", 1, status=running, ended_unix_nano=None),
        state("half-1", 1, group_id="half", status=over),
        state("half-2", 1, group_id="half", status=running, ended_unix_nano=None),
        state("changed", 999, status=over),
        state("over-1", 1, group_id="over"),
        state("over-2", 2, group_id="over"),
    )
    waiting = example_of(RolloutState).rollout.model_copy(update={"rollout_id": "waiting", "run_id": "run"})
    log.write_on(
        1,
        RolloutEvent(
            event_id="e", kind=EventKind.ENQUEUED, rollout_id="waiting", occurred_unix_nano=1, rollout=waiting
        ),
        *(example_of(SpanRecord).model_copy(update={"rollout_id": name}) for name in ("open", "waiting", "over-1")),
    )
    log.retain(days(30))
    assert left(log) == ["changed", "half-1", "half-2", "open"]
    assert left(log, "spans_raw") == ["open", "waiting"]
    assert left(log, "rollout_events") == ["waiting"], "the life cycle has not come to it yet"


@pytest.mark.parametrize("alive", ["step", "heartbeat", "neither"])
def test_what_a_training_has_not_come_to_yet_stays_while_it_trains(log: DatedLog, alive: str) -> None:
    heartbeat = example_of(WorkerHeartbeat).model_copy(
        update={"worker_id": "trainer-run", "kind": "trainer", "stats_json": json.dumps({"run_id": "run"})}
    )
    log.write_on(
        1,
        *(state(name, 1) for name in ("waits", "consumed")),
        state("in-skipped", 1, group_id="skipped"),
        state("validation", 1, mode=RolloutMode.VAL),
        step(1, "consumed", skipped=("skipped",)),
    )
    signs: dict[str, list[Record]] = {"step": [step(2)], "heartbeat": [heartbeat], "neither": []}
    log.write_on(999, *signs[alive])
    log.retain(days(30))
    assert left(log) == ([] if alive == "neither" else ["waits"])
    log.write_on(1_000, step(3, "waits"))
    log.retain(days(30))
    assert left(log) == []
    assert log.rows("SELECT count(*) FROM training_steps_raw") != [(0,)], "the run has a young step"


def test_what_belongs_to_no_rollout_leaves_by_its_own_age(log: DatedLog) -> None:
    span = example_of(SpanRecord).model_copy(update={"rollout_id": None, "attempt_id": None})
    worker = example_of(WorkerHeartbeat)
    for day in (1, 999):
        log.write_on(day, span, example_of(DeadLetter))
    log.write_on(1, *(worker.model_copy(update={"worker_id": name}) for name in ("gone", "alive", "alive")))
    log.write_on(999, worker.model_copy(update={"worker_id": "alive"}))
    log.retain(days(None, run=1))
    assert log.rows("SELECT count(*) FROM spans_raw") == [(2,)], "nothing says how long"
    log.retain(days(30))
    assert log.rows("SELECT count(*) FROM spans_raw") == [(1,)]
    assert log.rows("SELECT count(*) FROM dead_letters_raw") == [(1,)]
    assert log.rows("SELECT worker_id FROM workers_raw ORDER BY ALL") == [("alive",), ("gone",)], "the last of each"


@pytest.mark.parametrize("text", ["run", "run=", "=5", "run=-1", "run=0", "run=inf", "run=nan", "a=1, b=x"])
def test_a_setting_that_says_no_time_is_named(text: str) -> None:
    with pytest.raises(SettingsError, match=r"LIGHTSTREAM_VIEW_RETENTION_RUNS .* is not run=seconds or run=forever"):
        Settings.load(view_retention_runs=text)


def test_the_settings_are_read() -> None:
    settings = Settings.load(view_retention_s=60.0, view_retention_runs="best=forever, a=b=30, scratch-*=2.5")
    retention = Retention.of(settings)
    ages = {run: retention.of_run(run) for run in ("best", "a=b", "scratch-1", "other")}
    assert ages == {"best": None, "a=b": 30.0, "scratch-1": 2.5, "other": 60.0}
    assert retention.interval_s == 2.5 / retention_module.PASSES_PER_AGE
    assert Retention.of(Settings.load(view_retention_runs="best=forever")).interval_s is None
