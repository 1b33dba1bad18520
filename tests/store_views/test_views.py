"""The current state, collapsed by identity, whatever the log repeats."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

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
from lightstream.store_views.stores.kafka.spans_sql import spans_page_sql
from lightstream.store_views.stores.queries import SpanQuery
from lightstream.store_views.views import VIEWS
from tests.store_views.log_file import LogFile
from tests.store_views.test_accounting import state, step
from tests.stream_processors.assembly.build import closed, opened, proxy_span

ALL = SpanQuery(sort_by=None)


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
        asked = log.dicts(*spans_page_sql(rollout_id, None, ALL))
        assert len(asked) == (4 if rollout_id == span.rollout_id else 1)
        view = log.dicts(f"FROM spans WHERE rollout_id = {sql_literal(rollout_id)} ORDER BY log_offset")
        assert asked == [{name: row[name] for name in row if name in asked[0]} | {"total": len(view)} for row in view]


def test_questions_about_one_rollout_tell_what_questions_about_all_tell(log: LogFile) -> None:
    log.write(*EXAMPLES)
    log.write(*EXAMPLES, state("unseen"), state("failed", RolloutStatus.FAILED))
    for name in ("attempts", "spans", "llm_calls", "triplets", "rewards", "dropped", "why_not_trained"):
        of_all = log.dicts(f"FROM {name} ORDER BY ALL")
        assert of_all, name
        for rollout_id in {row["rollout_id"] for row in of_all if row["rollout_id"]}:
            of_one = log.dicts(f"FROM {name} WHERE rollout_id = {sql_literal(rollout_id)} ORDER BY ALL")
            assert of_one == [row for row in of_all if row["rollout_id"] == rollout_id]


def test_no_view_has_an_integer_of_128_bits_and_each_time_is_also_a_timestamp(log: LogFile) -> None:
    types: dict[str, dict[str, str]] = {}
    for view, column, sql_type in log.rows("SELECT table_name, column_name, data_type FROM duckdb_columns()"):
        types.setdefault(view, {})[column] = sql_type
    for view in VIEWS:
        columns = types[view.name]
        assert "HUGEINT" not in " ".join(columns.values()), view.name
        nanos = [name for name in columns if name.endswith("_unix_nano")]
        times = [name.replace("_unix_nano", "_at") for name in nanos]
        assert [columns[name] for name in times] == ["TIMESTAMP"] * len(nanos), view.name
        assert [list(columns).index(at) - list(columns).index(name) for at, name in zip(times, nanos, strict=True)] == (
            [1] * len(nanos)
        ), f"{view.name}: each stands beside the other"


def test_a_timestamp_is_the_same_time(log: LogFile) -> None:
    at = 1_700_000_000_123_456_789
    log.write(state("r1").model_copy(update={"updated_unix_nano": at}))
    ((found, ended),) = log.rows("SELECT updated_at, ended_at FROM rollouts")
    assert found == datetime.fromtimestamp(at // 10**9, UTC).replace(tzinfo=None, microsecond=123_456)
    assert ended is None


RECENT = """
import sys, time
from pathlib import Path
from tests.store_views.log_file import open_log_file
from tests.store_views.test_accounting import state
with open_log_file(Path(sys.argv[1])) as log:
    log.write(state("r1").model_copy(update={"updated_unix_nano": time.time_ns()}))
    print(log.rows("SELECT updated_at BETWEEN now() - INTERVAL 1 HOUR AND now() FROM rollouts"))
"""


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kolkata"])
def test_a_timestamp_compares_with_now_wherever_the_machine_is(zone: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RECENT, str(tmp_path / "view.duckdb")],
        env=os.environ | {"TZ": zone},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[(True,)]"


def resources(version: int, run_id: str = "run") -> ResourcesRecord:
    return ResourcesRecord(
        resources_id=f"{run_id}-v{version}", version=version, run_id=run_id, created_unix_nano=1 + version
    )


def test_metrics_are_a_map_and_staleness_counts_versions(log: LogFile) -> None:
    """The second step publishes nothing, so the third starts from the version that the first made."""
    calls = [proxy_span(1, policy_version=0), proxy_span(2, policy_version=1), proxy_span(3, response_model="other")]
    log.write(*(resources(version) for version in (0, 1)), resources(7, "other"))
    for number, published in ((1, "run-v1"), (2, None), (3, "run-v2")):
        rollout_id = f"r{number}"
        ours = [call.model_copy(update={"rollout_id": rollout_id, "attempt_id": f"{rollout_id}-a1"}) for call in calls]
        made = log.write_and_assemble(opened(rollout_id), *ours, closed(rollout_id))
        log.write(*made)  # emitted again after a crash
        committed = step(number, (rollout_id, rollout_id)).model_copy(
            update={"run_id": "run", "resources_id": published, "metrics": {"reward/mean": 0.5, "tokens": 3}}
        )
        log.write(committed)
    assert log.rows("SELECT step, policy_version, metrics['tokens'] FROM training_steps ORDER BY step") == [
        (1, 0, 3.0),
        (2, 1, 3.0),
        (3, 1, 3.0),
    ]
    assert log.rows("SELECT step, policy_version, staleness FROM consumed_calls ORDER BY step, call_index") == [
        *((1, 0, 0), (1, 1, -1), (1, None, None)),
        *((2, 0, 1), (2, 1, 0), (2, None, None)),
        *((3, 0, 1), (3, 1, 0), (3, None, None)),
    ]
