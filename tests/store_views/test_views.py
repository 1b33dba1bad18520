"""The current state, collapsed by identity, whatever the log repeats."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from lightstream.schemas.examples import EXAMPLES, example_of
from lightstream.schemas.records import (
    AttemptState,
    AttemptStatus,
    DeadLetter,
    ResourcesRecord,
    RolloutState,
    RolloutStatus,
    SpanRecord,
    Trajectory,
    WorkerHeartbeat,
)
from lightstream.store_views.sql_literal import sql_literal
from lightstream.store_views.stores._query import Query
from lightstream.store_views.stores.kafka.spans_sql import spans_page_sql
from lightstream.store_views.views import VIEWS
from tests.store_views.log_file import LogFile
from tests.store_views.test_accounting import state
from tests.stream_processors.assembly.build import closed, opened

ALL = Query((), every=True, sort_by=None, descending=False, limit=-1, offset=0)


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_every_view_is_described_and_answers(view: object, log: LogFile) -> None:
    log.write(*EXAMPLES)
    (found,) = [v for v in VIEWS if v is view]
    assert found.doc.endswith(".")
    assert log.rows(f"FROM {found.name}") is not None


def test_a_rollout_is_in_its_latest_state(log: LogFile) -> None:
    attempt = AttemptState(
        attempt_id="r1-a1", sequence=1, status=AttemptStatus.RUNNING, started_unix_nano=5, ended_unix_nano=None
    )
    log.write(
        state("r1", RolloutStatus.QUEUING),
        state("r2", RolloutStatus.QUEUING),
        state("r1", RolloutStatus.RUNNING).model_copy(update={"attempts": [attempt]}),
        state("nobody", RolloutStatus.UNKNOWN),
    )
    assert log.rows("SELECT rollout_id, status, attempt_count FROM rollouts ORDER BY rollout_id") == [
        ("r1", "running", 1),
        ("r2", "queuing", 0),
    ]
    log.write(opened(), closed())
    assert log.rows("SELECT rollout_id, attempt_id, status, final FROM attempts") == [("r1", "r1-a1", "running", True)]


def test_the_latest_revision_of_a_trajectory_replaces_its_rows_everywhere(log: LogFile) -> None:
    first = example_of(Trajectory)
    second = first.model_copy(update={"revision": first.revision + 1, "triplets": [], "rewards": [], "drops": []})
    log.write(second, first, second)
    assert log.rows("SELECT revision FROM trajectories") == [(second.revision,)]
    for name in ("triplets", "rewards", "dropped"):
        assert log.rows(f"FROM {name}") == []


@pytest.mark.parametrize(
    ("record", "view", "key"),
    [
        (example_of(WorkerHeartbeat), "workers", "heartbeat_unix_nano"),
        (example_of(ResourcesRecord), "resources", "created_unix_nano"),
    ],
    ids=["workers", "resources"],
)
def test_the_latest_record_of_a_key_counts(record: WorkerHeartbeat, view: str, key: str, log: LogFile) -> None:
    log.write(record, record.model_copy(update={key: 7}))
    assert [row[key] for row in log.dicts(f"FROM {view}")] == [7]


def test_a_record_that_two_readers_report_is_one_dead_letter(log: LogFile) -> None:
    letter = example_of(DeadLetter)
    log.write(letter, letter.model_copy(update={"reported_by": "another"}))
    assert log.rows("SELECT reported_by FROM dead_letters") == [(letter.reported_by,)]


def test_states_come_back_as_the_latest_whatever_their_number(log: LogFile) -> None:
    statuses: Sequence[RolloutStatus] = [RolloutStatus.QUEUING, RolloutStatus.RUNNING, RolloutStatus.SUCCEEDED]
    records: list[RolloutState] = [state(f"r{i % 20}", statuses[min(i // 20, 2)], offset=i) for i in range(100)]
    log.write(*records)
    assert log.rows("SELECT status, count(*), min(source_offset) FROM rollouts GROUP BY status") == [
        ("succeeded", 20, 80)
    ]


def test_a_repeated_span_is_the_first_of_its_name_attempt_and_rollout(log: LogFile) -> None:
    span = example_of(SpanRecord)
    homeless = span.model_copy(update={"rollout_id": None, "attempt_id": None, "trace_id": "alone"})
    others = [
        span.model_copy(update={"rollout_id": "r'2"}),
        span.model_copy(update={"attempt_id": "another"}),
        span.model_copy(update={"attempt_id": None}),
        span.model_copy(update={"span_id": "another"}),
        homeless.model_copy(update={"trace_id": "alone too"}),
    ]
    again = span.model_copy(update={"name": "again"})
    log.write(span, homeless, again, *others)
    log.write(*others, again, homeless, span)
    assert log.rows("SELECT log_offset, name FROM spans ORDER BY log_offset") == [
        (offset, span.name) for offset in (0, 1, 3, 4, 5, 6, 7)
    ]
    for rollout_id in (span.rollout_id or "", "r'2"):
        asked = log.dicts(spans_page_sql(rollout_id, None, ALL))
        assert len(asked) == (4 if rollout_id == span.rollout_id else 1)
        view = log.dicts(f"FROM spans WHERE rollout_id = {sql_literal(rollout_id)} ORDER BY log_offset")
        assert asked == [{name: row[name] for name in row if name in asked[0]} | {"total": len(view)} for row in view]


def test_questions_about_one_rollout_tell_what_questions_about_all_tell(log: LogFile) -> None:
    log.write(*EXAMPLES)
    log.write(*EXAMPLES)
    for name in ("attempts", "spans", "llm_calls", "triplets", "rewards", "dropped", "why_not_trained"):
        of_all = log.dicts(f"FROM {name} ORDER BY ALL")
        for rollout_id in {row["rollout_id"] for row in of_all if row["rollout_id"]}:
            of_one = log.dicts(f"FROM {name} WHERE rollout_id = {sql_literal(rollout_id)} ORDER BY ALL")
            assert of_one == [row for row in of_all if row["rollout_id"] == rollout_id]
