"""The current states are those that a query over the whole history finds, whatever the history and its cuts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightstream.schemas.records import (
    AttemptState,
    AttemptStatus,
    EventKind,
    RolloutSpec,
    RolloutState,
    RolloutStatus,
    Verdict,
    VerdictOutcome,
)
from lightstream.schemas.topics import ROLLOUTS
from lightstream.store_views.materialiser.arrow_rows import LoggedRecord, arrow_table
from lightstream.store_views.stores.kafka.rollouts_sql import page_and_count_sql
from lightstream.store_views.stores.kafka.rows import state_of_row
from lightstream.store_views.stores.queries import RolloutQuery, value_of_state
from lightstream.store_views.tables import tables_of
from tests.store_views.log_file import open_view

FROM_HISTORY = """
SELECT
    rollout_id, run_id, mode, status, group_id, group_size, resources_id, input_json, metadata_json,
    len(attempts) AS attempt_count,
    timeout_seconds, unresponsive_seconds, max_attempts, retry_condition, priority,
    credit, reward_match, trained_agents,
    enqueued_unix_nano, updated_unix_nano, ended_unix_nano,
    (ended_unix_nano - enqueued_unix_nano) / 1e9 AS seconds,
    attempts, source_offset, log_partition, log_offset
FROM rollout_states
WHERE status <> 'unknown'
QUALIFY row_number() OVER (
    PARTITION BY rollout_id ORDER BY source_offset DESC, log_offset DESC, log_partition DESC
) = 1
"""
"""The definition: what `rollouts` shows, by looking at every state there ever was."""

IDS = ("r1", "r2", "R2", "r/3", "r'4", "ö5")
SECOND = 1_000_000_000
TIMES = {rollout_id: (i // 2) * SECOND for i, rollout_id in enumerate(IDS)} | dict.fromkeys(
    ("once", "again", "nobody"), SECOND
)
"""When each was enqueued: every two at one time."""

CRASH = "crash"
RESTART = "restart"


@dataclass(frozen=True, slots=True)
class Event:
    """A state in the log: ``source_offset`` may repeat (logged again) or fall (by a worker that was replaced)."""

    rollout_id: str
    status: RolloutStatus
    source_offset: int
    partition: int

    def record(self, content: int) -> RolloutState:
        """The state; ``content`` tells records of one source offset apart."""
        attempts = [
            AttemptState(
                attempt_id=f"{self.rollout_id}-a{i + 1}",
                sequence=i + 1,
                status=AttemptStatus.RUNNING,
                started_unix_nano=content,
            )
            for i in range(content % 3)
        ]
        return RolloutState(
            rollout=RolloutSpec(
                rollout_id=self.rollout_id,
                enqueued_unix_nano=TIMES[self.rollout_id],
                resources_id=None if content % 2 else f"v{content}",
                group_id="g" if content % 3 else None,
            ),
            status=self.status,
            attempts=attempts,
            updated_unix_nano=content,
            ended_unix_nano=content * SECOND if self.status.is_terminal else None,
            source_offset=self.source_offset,
            verdict=Verdict(event_id=f"{content}", kind=EventKind.ENQUEUED, outcome=VerdictOutcome.APPLIED),
        )


class View:
    """A file, and where its log stands."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._database = open_view(path)
        self._next: dict[int, int] = {0: 0, 1: 0}
        self._written = 0

    def append(self, events: Sequence[Event], *, crash: bool = False) -> None:
        """One transaction; with ``crash`` one that fails at its end, and is made again after a restart."""
        offsets, logged = dict(self._next), list[LoggedRecord]()
        for i, event in enumerate(events):
            logged.append(LoggedRecord(event.record(self._written + i), event.partition, offsets[event.partition], 1))
            offsets[event.partition] += 1
        tables = {table.name: arrow_table(table, logged) for table in tables_of(RolloutState)}
        places = {(ROLLOUTS.name, partition): offset for partition, offset in offsets.items()}
        if crash:
            with pytest.raises(duckdb.Error):
                self._database.append(tables, {**places, (ROLLOUTS.name, 2**40): 1})
            self.restart()
        self._database.append(tables, places)
        self._next, self._written = offsets, self._written + len(events)

    def restart(self) -> None:
        self._database.close()
        self._database = open_view(self._path)

    def dicts(self, sql: str, parameters: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """The answer to a query, by column name."""
        cursor = self._database.cursor().execute(sql, parameters)
        names = [column[0] for column in cursor.description or []]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def close(self) -> None:
        self._database.close()


EVENTS = st.builds(
    Event,
    rollout_id=st.sampled_from(IDS),
    status=st.sampled_from(RolloutStatus),
    source_offset=st.integers(0, 12),
    partition=st.integers(0, 1),
)
BATCHES = st.lists(st.lists(EVENTS, max_size=12), max_size=5)
TIMES_ASKED = st.none() | st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0])
NO_CONDITIONS: dict[str, Any] = {
    "status_in": None,
    "rollout_id_in": None,
    "rollout_id_contains": None,
    "rollout_id_prefix": None,
    "started_after": None,
    "started_before": None,
    "filter_logic": "and",
}
QUERIES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "status_in": st.none() | st.lists(st.sampled_from([status.value for status in RolloutStatus]), max_size=3),
        "rollout_id_in": st.none() | st.lists(st.sampled_from([*IDS, "nobody"]), max_size=4),
        "rollout_id_contains": st.none() | st.sampled_from(["", "r", "2", "'", "/"]),
        "rollout_id_prefix": st.none() | st.sampled_from(["", "r", "R", "ö", "%"]),
        "started_after": TIMES_ASKED,
        "started_before": TIMES_ASKED,
        "filter_logic": st.sampled_from(["and", "or"]),
        "sort_by": st.none() | st.sampled_from(["rollout_id", "status", "start_time", "end_time", "resources_id"]),
        "sort_order": st.sampled_from(["asc", "desc"]),
        "limit": st.sampled_from([-1, 0, 1, 2, 100]),
        "offset": st.sampled_from([0, 1, 3, 50]),
    }
)


@settings(max_examples=25)
@given(st.data(), BATCHES, st.lists(st.sampled_from([CRASH, RESTART, None]), min_size=5, max_size=5))
def test_rollouts_is_what_the_whole_history_tells(
    data: st.DataObject, batches: list[list[Event]], interruptions: list[str | None]
) -> None:
    with TemporaryDirectory() as folder:
        view = View(Path(folder) / "view.duckdb")
        for events, interruption in zip(batches, interruptions, strict=False):
            view.append(events, crash=interruption == CRASH)
            if interruption == RESTART:
                view.restart()
            expected = view.dicts(FROM_HISTORY + " ORDER BY rollout_id")
            ours = view.dicts("SELECT * EXCLUDE (enqueued_at, updated_at, ended_at) FROM rollouts ORDER BY rollout_id")
            assert ours == expected
        states = [state_of_row(row) for row in view.dicts(FROM_HISTORY)]
        states.sort(key=lambda state: (state.rollout.enqueued_unix_nano, state.rollout.rollout_id))
        for arguments in data.draw(st.lists(QUERIES, min_size=5, max_size=5)):
            query = RolloutQuery.checked(**arguments)
            page = query.page(states, value_of_state)
            found = view.dicts(*page_and_count_sql(query))
            assert [state_of_row(row) for row in found] == page.items, arguments
            assert {row["total"] for row in found} <= {page.total}, arguments
        view.close()


def test_what_was_replaced_does_not_count_for_the_first_of_an_order(tmp_path: Path) -> None:
    """DuckDB 2.0.0 leaves out groups of rows by what their deleted rows held, unless it is told not to."""
    view = View(tmp_path / "view.duckdb")
    nobody = Event("nobody", RolloutStatus.UNKNOWN, 0, 0)
    for events in ([nobody] * 8, [Event("again", RolloutStatus.RUNNING, 1, 0)], [nobody]):
        view.append(events)  # with resources v8
    view.append([Event("once", RolloutStatus.RUNNING, 2, 0)])  # v10
    view.restart()
    view.append([nobody])
    view.append([Event("again", RolloutStatus.RUNNING, 3, 0)])  # v12
    query = RolloutQuery.checked(**NO_CONDITIONS, sort_by="resources_id", sort_order="asc", limit=1, offset=0)
    (first,) = view.dicts(*page_and_count_sql(query))
    assert first["rollout_id"] == "once"
    last_first = RolloutQuery.checked(**NO_CONDITIONS, sort_by="resources_id", sort_order="desc", limit=1, offset=0)
    (last,) = view.dicts(*page_and_count_sql(last_first))
    assert (last["rollout_id"], last["resources_id"]) == ("again", "v12")
    view.close()
