"""What a deletion of a run leaves in the view: what a view has that never saw the run."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from lightstream.runtime.deletions import Deletions
from lightstream.schemas.errors import NotFoundError
from lightstream.schemas.examples import example_of
from lightstream.schemas.records import (
    AttemptClosed,
    AttemptOpened,
    AttemptStatus,
    DeadLetter,
    EventKind,
    PartitionOffset,
    Record,
    ResourcesRecord,
    RolloutEvent,
    RolloutState,
    RolloutStatus,
    RunDeleted,
    SourceRange,
    SpanRecord,
    TrainingStep,
    Trajectory,
)
from lightstream.schemas.topics import RESOURCES, SPANS, TRAJECTORIES
from lightstream.store_views.explain import explain
from lightstream.store_views.tables import KEPT_TABLES, RAW_TABLES
from lightstream.store_views.views import VIEWS
from tests.store_views.log_file import LogFile, open_log_file

LIKE_NAMES = ("run", "run-2", "RUN", "ru", "run%", "")
OWN = ("deletions_raw", "rollouts_deleted", "groups_changed", "reasons_settled")
"""They tell of deletions; the view ``reason_codes`` joins the last two."""
PLACES = {"log_offset", "source_offset", "source_first_offset", "source_last_offset", "full_from_offset"}
"""They tell where in the log a record lies, which depends on what else is there."""


def records_of(run: str, *, number: int = 0) -> list[Record]:
    """All that one trained rollout of a run leaves in the log."""
    rollout, attempt, group = (f"{run}/{number}-{kind}" for kind in ("rollout", "attempt", "group"))
    of_run = {"rollout_id": rollout, "run_id": run, "group_id": group, "group_size": 1}
    spec = example_of(RolloutState).rollout.model_copy(update=of_run)
    of_attempt = {"rollout_id": rollout, "attempt_id": attempt}
    consumed = example_of(TrainingStep).consumed[0].model_copy(update=of_attempt | {"group_id": group})
    enqueued = RolloutEvent(
        event_id=f"{rollout}:enqueued", kind=EventKind.ENQUEUED, rollout_id=rollout, occurred_unix_nano=1, rollout=spec
    )
    ended = {"rollout": spec, "status": RolloutStatus.SUCCEEDED}
    return [
        enqueued,
        example_of(RolloutState).model_copy(update=ended),
        example_of(AttemptOpened).model_copy(update={"rollout": spec, "attempt_id": attempt}),
        example_of(SpanRecord).model_copy(update=of_attempt),
        example_of(AttemptClosed).model_copy(update=of_attempt | {"status": AttemptStatus.SUCCEEDED}),
        example_of(Trajectory).model_copy(update=of_attempt | of_run | {"final": True, "reward": 0.5 + number}),
        example_of(ResourcesRecord).model_copy(update={"run_id": run, "resources_id": f"{run}-v{number}"}),
        example_of(TrainingStep).model_copy(
            update={"run_id": run, "trainer_id": run or "t", "step": number, "consumed": [consumed]}
        ),
        example_of(DeadLetter).model_copy(update={"key": rollout.encode(), "origin_partition": 0, "origin_offset": 0}),
    ]


def deletion(log: LogFile, run: str, *, ahead: int = 0) -> RunDeleted:
    """The record that the command writes now, or when each topic is further by so many records."""
    ends = {topic: end for (topic, _), end in log.database.next_offsets().items() if topic != "deletions"}
    positions = [PartitionOffset(topic=name, partition=0, offset=end + ahead) for name, end in ends.items()]
    return RunDeleted(run_id=run, positions=positions, deleted_unix_nano=1)


def content(log: LogFile) -> dict[str, list[str]]:
    """All tables and views but the deletions' own, rows in no order, without places in the log."""
    names = [table.name for table in RAW_TABLES] + [table.name for table in KEPT_TABLES] + [view.name for view in VIEWS]
    sums = {table.name: table for table in KEPT_TABLES if table.keys}
    found: dict[str, list[str]] = {}
    for name in names:
        if name in OWN:
            continue
        if name in sums:
            keys, numbers = list(sums[name].types)[: sums[name].keys], list(sums[name].types)[sums[name].keys :]
            summed = ", ".join(f"sum({number}) AS {number}" for number in numbers)
            sql = f"SELECT {', '.join(keys)}, {summed} FROM {name} GROUP BY ALL HAVING {numbers[0]} <> 0"  # noqa: S608  # our names
        else:
            sql = f"FROM {name}"
        rows: Iterable[dict[str, Any]] = log.dicts(sql)
        found[name] = sorted(str({key: row[key] for key in row if key not in PLACES}) for row in rows)
    return found


@pytest.mark.parametrize("settled", [False, True])
def test_a_deleted_run_leaves_what_a_view_has_that_never_saw_it(
    tmp_path: Path, settled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if settled:
        monkeypatch.setattr("lightstream.store_views.materialiser.summaries.SETTLED_AFTER", 0)
    others = list(chain(*(records_of(run) for run in LIKE_NAMES)))
    of_run = [*records_of("run-1"), *records_of("run-1", number=1)]
    with open_log_file(tmp_path / "a", others) as never, open_log_file(tmp_path / "b", []) as log:
        for record in chain(*zip(of_run, others, strict=False), others[len(of_run) :]):
            log.write(record)
        assert content(log) != content(never)

        log.write(deletion(log, "run-1"))

        assert content(log) == content(never)
        with pytest.raises(
            NotFoundError, match="Rollout run-1/0-rollout was deleted with its run 'run-1' at 1970-01-01"
        ):
            explain(log.dicts, "run-1/0-rollout")
        with pytest.raises(NotFoundError, match="Rollout run-1/9-rollout not found"):
            explain(log.dicts, "run-1/9-rollout")
        log.write(deletion(log, "run-1"))  # said again
        assert content(log) == content(never)
        new = records_of("run-1", number=7)
        for each in (log, never):
            each.write(*new)
        assert content(log) == content(never), "a new run of the same name is one that had no other before it"
        assert log.rows("SELECT run_id FROM runs WHERE run_id = 'run-1'") == [("run-1",)]


def test_rows_go_once_all_up_to_the_deletion_was_read_also_by_the_next_process(tmp_path: Path) -> None:
    path = tmp_path / "view"
    with open_log_file(path) as log:
        log.write(*records_of("a"))
        log.write(deletion(log, "a", ahead=1))
        assert log.rows("SELECT count(*) FROM spans_raw") == [(1,)]
    with open_log_file(path) as log:
        log.write(*records_of("a", number=1), *records_of("b"))
        assert ("a/0-rollout",) not in log.rows("SELECT rollout_id FROM spans_raw")
        assert log.rows("FROM deletions_pending") == []
        assert log.rows("SELECT run_id FROM rollouts") == [("b",)]


def test_records_of_a_deleted_run_are_known_before_their_files_are_read() -> None:
    deletions = Deletions()
    ends = {TRAJECTORIES: 10, RESOURCES: 5, SPANS: 100}
    positions = [PartitionOffset(topic=topic.name, partition=1, offset=end) for topic, end in ends.items()]
    deletions.note(RunDeleted(run_id="run", positions=positions, deleted_unix_nano=1))

    def covered(offset: int, last_span: int, run: str = "run", partition: int = 1) -> bool:
        source = SourceRange(partition=1, first_offset=0, last_offset=last_span)
        record = example_of(Trajectory).model_copy(update={"run_id": run, "source": source})
        return deletions.covers(record, TRAJECTORIES, partition, offset)

    assert covered(9, 200)
    assert not covered(10, 100)
    assert covered(10, 99), "assembled late, of spans from before"
    assert not covered(9, 200, partition=0)
    assert not covered(9, 99, run="run-1")
    unknown = example_of(Trajectory).model_copy(update={"run_id": "run", "source": SourceRange()})
    assert not deletions.covers(unknown, TRAJECTORIES, 1, 10), "its spans are not known"
    resources = example_of(ResourcesRecord).model_copy(update={"run_id": "run"})
    assert [deletions.covers(resources, RESOURCES, 1, offset) for offset in (4, 5)] == [True, False]
