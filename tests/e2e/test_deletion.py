"""A run is deleted while another trains, with its large records, and the views are killed in the middle.

Of the deleted run nothing is left in views, exports and answers; the other is as the log says; the disk has the bytes
back that ``lightstream du`` told.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from lightstream.cli.delete_run import Deleted, delete_run
from lightstream.runtime.kafka import KafkaPublisher
from lightstream.runtime.settings import Settings
from lightstream.schemas.records import Record, RolloutState, SpanRecord, TrainingStep, Trajectory
from lightstream.schemas.topics import ROLLOUTS, SPANS, TRAINING_STEPS, TRAJECTORIES, Topic
from lightstream.schemas.types import EnqueueRolloutRequest
from lightstream.store_views.materialiser import default_path
from lightstream.store_views.stores import KafkaLightningStore
from lightstream.store_views.tables import RAW_TABLES
from lightstream.trainers import ViewClient, make_tiny_model
from lightstream.up import Stack
from tests.e2e.test_two_runs import begin, end
from tests.stream_processors.assembly.build import proxy_span
from tests.support.log_tail import LogTail
from tests.support.runs_command import lightstream
from tests.support.waiting import eventually

SERVICES = ("worker", "view", "policy", "proxy")
VIEWS = ("view", "view-sql")
WAIT_S = 300.0
TOKENS, CALLS = 60_000, 3
"""480 KB a call with log-probabilities and mask, of 1 MiB that a record takes."""


def test_a_run_is_deleted_while_another_trains(tmp_path: Path) -> None:
    models = {name: make_tiny_model(tmp_path / name, seed=seed) for seed, name in enumerate(("a", "b"), 1)}
    settings = Settings.load(data_dir=tmp_path / "data", record_bytes_max=1024**2, sql_view=True)
    with Stack(settings, services=SERVICES) as stack:
        end(begin(stack, "a", models["a"], 2))
        large = asyncio.run(large_rollouts(stack.settings))
        with closing(ViewClient(stack.settings, patience_s=WAIT_S)) as view:
            eventually(lambda: assembled(view, large), timeout_s=WAIT_S, what="the large trajectories")
            of_a = {row[0] for row in view.query("SELECT rollout_id FROM rollouts WHERE run_id = 'a'").rows}
        assert of_a >= set(large)
        told = of_run(stack.settings, "a")

        other = begin(stack, "b", models["b"], 4)
        with closing(ViewClient(stack.settings, patience_s=WAIT_S)) as view:
            eventually(lambda: steps(view, "b"), timeout_s=WAIT_S, what="the first step of the other")
        done = delete_run(stack.settings, "a")
        for name in VIEWS:
            stack.kill(name)
        assert done == Deleted(told["checkpoint_bytes"], done.large_record_bytes, len(of_a))
        assert done.large_record_bytes >= told["large_record_bytes"] > len(large) * 1024**2
        assert not list((tmp_path / "data" / "large-records").rglob("*.avro"))
        end(other)

        check(stack.settings, of_a, tmp_path)
        files = list(default_path(stack.settings).parent.glob("*.duckdb"))
        assert len(files) == 2
    for path in files:
        path.unlink()
    with Stack(settings, services=SERVICES) as stack:
        check(stack.settings, of_a, tmp_path)


async def large_rollouts(settings: Settings) -> list[str]:
    """Run two rollouts of run ``a`` whose trajectories fit in no record; returns their ids."""
    ids: list[str] = []
    store = KafkaLightningStore(settings)
    await store.start()
    try:
        await store.enqueue_many_rollouts([EnqueueRolloutRequest(input=n, run_id="a") for n in range(2)])
        with closing(KafkaPublisher(settings)) as publisher:
            for _ in range(2):
                taken = await store.dequeue_rollout(timeout_s=WAIT_S, run_id="a")
                assert taken is not None
                attempt_id = taken.attempt.attempt_id
                for number in range(CALLS):
                    span = proxy_span(number, response=range(TOKENS), rollout_id=taken.rollout_id)
                    span = span.model_copy(update={"attempt_id": attempt_id})
                    publisher.publish(SPANS, taken.rollout_id, span).result(WAIT_S)
                await store.update_attempt(taken.rollout_id, attempt_id, status="succeeded")
                ids.append(taken.rollout_id)
    finally:
        await store.close()
    return ids


def assembled(view: ViewClient, rollouts: list[str]) -> bool:
    sql = "SELECT count(*) FROM trajectories_raw WHERE payload_size_bytes > 0 AND list_contains(?, rollout_id)"
    return int(view.query(sql, params=[rollouts]).scalar()) == len(rollouts)


def steps(view: ViewClient, run: str) -> int:
    return int(view.query("SELECT count(*) FROM training_steps_raw WHERE run_id = ?", params=[run]).scalar())


def of_run(settings: Settings, run: str) -> dict[str, Any]:
    """What ``lightstream du`` tells of a run."""
    told = json.loads(lightstream(settings, "du", "--format", "json"))
    (found,) = [one for one in told["runs"] if one["run_id"] == run]
    assert isinstance(found, dict)
    return found


def records(settings: Settings, topic: Topic) -> list[Record | None]:
    return [logged.record for logged in LogTail(settings, topic).read_to_end()]


def check(settings: Settings, gone: set[str], folder: Path) -> None:
    """No trace of run ``a`` in either view, exports and answers; of run ``b`` what a fold of the log says."""
    rollouts = {
        record.rollout.rollout_id
        for record in records(settings, ROLLOUTS)
        if isinstance(record, RolloutState) and record.rollout.run_id == "b"
    }
    spans: dict[str, set[str]] = defaultdict(set)
    for record in records(settings, SPANS):
        if isinstance(record, SpanRecord) and record.rollout_id in rollouts:
            spans[record.rollout_id or ""].add(record.span_id)
    trajectories = {
        (record.attempt_id, record.revision)
        for record in records(settings, TRAJECTORIES)
        if isinstance(record, Trajectory) and record.run_id == "b"
    }
    committed = [
        (record.step, len(record.consumed))
        for record in records(settings, TRAINING_STEPS)
        if isinstance(record, TrainingStep) and record.run_id == "b"
    ]
    assert len(committed) == 4
    for lane in ("stores", "others"):  # the training's view, and that of people
        with closing(ViewClient(settings, lane=lane, patience_s=WAIT_S)) as view:
            view.wait_for("now", wait_s=WAIT_S)
            eventually(lambda: left_of(view, gone) == {}, timeout_s=WAIT_S, what="the run to be gone")
            rows = view.query("SELECT rollout_id, count(DISTINCT span_id) FROM spans GROUP BY ALL", "now").rows
            assert {row[0]: row[1] for row in rows if row[0]} == {name: len(ids) for name, ids in spans.items()}
            found = view.query("SELECT DISTINCT attempt_id, revision FROM trajectories_raw", "now").rows
            assert {(attempt, revision) for attempt, revision in found} == trajectories
            made = "SELECT step, len(list(rollout_id)) FROM consumed_raw GROUP BY step ORDER BY step"
            assert [tuple(row) for row in view.query(made, "now").rows] == committed
            assert [row[0] for row in view.query("SELECT run_id FROM runs").rows] == ["b"]
            some = view.query("SELECT count(*) FROM triplets").scalar()
    path = folder / "calls.parquet"
    lightstream(settings, "export", "parquet", str(path))
    exported = pq.read_table(path)
    assert set(exported.column("run_id").to_pylist()) == {"b"}
    assert exported.num_rows == some
    assert "│ a " not in lightstream(settings, "runs")
    assert asyncio.run(answers(settings, gone)) == []


def left_of(view: ViewClient, gone: set[str]) -> dict[str, int]:
    """Table -> rows of run ``a``, by its name or a rollout of it."""
    found: dict[str, int] = {}
    for table in RAW_TABLES:
        names = {column.name for column in table.all_columns}
        which = [f"{name} = 'a'" for name in ("run_id", "enqueued_run_id") if name in names]
        which += ["list_contains($gone, rollout_id)"] if "rollout_id" in names else []
        if which and table.name != "deletions_raw":
            sql = f"SELECT count(*) FROM {table.name} WHERE ({' OR '.join(which)})"  # noqa: S608  # our names
            used = {"gone": sorted(gone)} if "$gone" in sql else None
            if count := view.query(sql, params=used).scalar():
                found[table.name] = int(count)
    return found


async def answers(settings: Settings, gone: set[str]) -> list[str]:
    """Rollouts of these that a store still knows."""
    store = KafkaLightningStore(settings)
    await store.start()
    try:
        known = {rollout.rollout_id for rollout in await store.query_rollouts()}
        known |= {name for name in gone if await store.get_rollout_by_id(name) is not None}
        return sorted(known & gone)
    finally:
        await store.close()
