"""What a run is doing and what it is made with, by records of this version and of older ones."""

from __future__ import annotations

import json
import time
from typing import Any

from lightstream.schemas.records import ResourcesRecord, TrainingStep, WorkerHeartbeat, WorkerStatus
from lightstream.store_views.queries import named_query
from tests.store_views.log_file import LogFile
from tests.store_views.test_accounting import step

SECOND = 1_000_000_000


def beat(run_id: str | None, status: str = "busy", age_s: float = 1.0, **fields: Any) -> WorkerHeartbeat:
    stats: dict[str, Any] = {"run_id": run_id}
    stats |= {name: fields.pop(name) for name in ("state", "error") if name in fields}
    known: dict[str, Any] = {
        "worker_id": f"trainer:{run_id}",
        "kind": "trainer",
        "host": "h",
        "pid": 1,
        "status": WorkerStatus(status),
        "heartbeat_unix_nano": time.time_ns() - int(age_s * SECOND),
        "stats_json": json.dumps(stats),
    }
    return WorkerHeartbeat(**(known | fields))


def made(run_id: str, number: int, planned: int) -> TrainingStep:
    return step(number).model_copy(
        update={"run_id": run_id, "trainer_id": run_id, "step": number, "steps_planned": planned, "consumed": []}
    )


def states(log: LogFile) -> dict[str, tuple[str, str]]:
    rows = log.rows("SELECT run_id, state, error FROM run_states ORDER BY run_id")
    asked = {row[0]: row[1:] for row in rows}
    assert len(asked) == len(rows), "a row for each run"
    sql, values = named_query("runs").statement({})
    assert {row["run_id"]: (row["state"], row["error"]) for row in log.dicts(sql, values)} == asked
    return asked


def test_a_run_is_what_its_trainer_said_last_or_lost(log: LogFile) -> None:
    log.write(
        beat("runs", age_s=60),
        beat("runs", age_s=5, state="running"),
        beat("is-lost", age_s=13, state="running"),
        beat("failed", state="running"),
        beat("failed", "stopped", age_s=600, state="failed", error="no room"),
        beat("stopped", "stopped", state="stopped"),
        beat("finished", "stopped", age_s=9e6, state="finished", error=""),
        beat("goes-on", "stopped", state="failed", error="once"),
        beat("goes-on", state="running", error="", pid=2),
        WorkerHeartbeat(worker_id="w", kind="runner", status=WorkerStatus.BUSY, heartbeat_unix_nano=1),
        WorkerHeartbeat(worker_id="x", kind="trainer", status=WorkerStatus.BUSY, heartbeat_unix_nano=1, stats_json="{"),
    )
    assert states(log) == {
        "failed": ("failed", "no room"),
        "finished": ("finished", ""),
        "goes-on": ("running", ""),
        "is-lost": ("lost", ""),
        "runs": ("running", ""),
        "stopped": ("stopped", ""),
    }


def test_one_trainer_of_several_runs_and_records_of_older_versions(log: LogFile) -> None:
    one: dict[str, Any] = {"worker_id": "trainer:one"}
    log.write(
        beat("first", **one, state="running"),
        beat("first", "stopped", **one, state="failed", error="first failed"),
        beat("second", **one, state="running"),  # by the same process
        beat("old-done", "stopped"),
        beat("old-left", "stopped"),
        made("old-done", 3, 3),
        made("old-left", 2, 3),
        made("silent-done", 5, 5),
        made("silent-left", 1, 0),
    )
    assert {run: state for run, (state, _) in states(log).items()} == {
        "first": "failed",
        "second": "running",
        "old-done": "finished",
        "old-left": "stopped",
        "silent-done": "finished",
        "silent-left": "stopped",
    }


def test_what_two_runs_are_made_with(log: LogFile) -> None:
    def resources(run_id: str, made_with: dict[str, str], version: int = 1) -> ResourcesRecord:
        return ResourcesRecord(
            resources_id=f"{run_id}-v{version}",
            run_id=run_id,
            version=version,
            made_with=made_with,
            created_unix_nano=1,
        )

    options = {"learning_rate": 1e-5, "kl": None, 'it\'s "odd"': [1, 2]}
    log.write(
        resources("a", {"model": "m", "seed": "0", "options": json.dumps(options)}),
        resources("a", {}, 2),
        resources("b", {"model": "m", "seed": "1", "options": json.dumps(options | {"learning_rate": 1e-4})}),
        resources("c", {"options": "not JSON"}),
    )

    def configuration(**given: str) -> list[tuple[Any, ...]]:
        return log.rows(*named_query("configuration").statement(given))

    assert configuration(run="a") == [
        ('it\'s "odd"', "[1,2]", None, False),
        ("kl", None, None, False),
        ("learning_rate", "0.00001", None, False),
        ("model", "m", None, False),
        ("seed", "0", None, False),
    ]
    assert configuration(run="a", other="b")[:2] == [
        ("learning_rate", "0.00001", "0.0001", True),
        ("seed", "0", "1", True),
    ]
    assert not any(row[3] for row in configuration(run="a", other="b")[2:])
    assert configuration(run="c") == configuration(run="nobody") == []
