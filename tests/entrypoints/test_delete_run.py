"""``lightstream runs delete``, on a real broker and view."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lightstream.cli import delete_run as command
from lightstream.cli.delete_run import RunInUseError, delete_run
from lightstream.cli.view_query import ask_view
from lightstream.runtime.files import private_folder
from lightstream.runtime.kafka import KafkaPublisher
from lightstream.runtime.settings import Settings
from lightstream.schemas.codec import Codec
from lightstream.schemas.errors import TrainingError
from lightstream.schemas.examples import example_of
from lightstream.schemas.records import ResourcesRecord
from lightstream.schemas.topics import RESOURCES
from lightstream.schemas.types import EnqueueRolloutRequest
from lightstream.store_views.client import ViewClient
from lightstream.store_views.materialiser import default_path
from lightstream.store_views.stores import KafkaLightningStore
from lightstream.trainers.ledger.kafka import KafkaLedger
from lightstream.trainers.ledger.reading import read_topic
from lightstream.trainers.run.lock import RunLock
from lightstream.up import Stack
from tests.support.runs_command import lightstream
from tests.support.waiting import eventually

COUNTS = {"run": 2, "run-1": 3, "run-11": 1, "": 1}
BY_RUN = """
SELECT run_id, count(*) FROM (
    SELECT run_id FROM rollouts UNION ALL SELECT run_id FROM rollout_states
    UNION ALL SELECT run_id FROM trajectories_raw UNION ALL SELECT run_id FROM attempts_opened_raw
    UNION ALL SELECT enqueued_run_id FROM rollout_events WHERE enqueued_run_id IS NOT NULL
) GROUP BY run_id ORDER BY run_id
"""


def settings_of(kafka_servers: str, folder: Path) -> Settings:
    return Settings.load(
        kafka_bootstrap_servers=kafka_servers, topic_prefix=f"t{uuid.uuid4().hex[:12]}.", data_dir=folder
    )


def with_store(settings: Settings, work: Callable[[KafkaLightningStore], Awaitable[None]]) -> None:
    async def run() -> None:
        store = KafkaLightningStore(settings)
        await store.start()
        try:
            await work(store)
        finally:
            await store.close()

    asyncio.run(run())


def finish(settings: Settings, counts: dict[str, int]) -> None:
    """Enqueue rollouts of each run, and run them to their ends."""

    async def work(store: KafkaLightningStore) -> None:
        for run, count in counts.items():
            await store.enqueue_many_rollouts([EnqueueRolloutRequest(input=n, run_id=run) for n in range(count)])
            for _ in range(count):
                taken = await store.dequeue_rollout(timeout_s=60, run_id=run)
                assert taken is not None
                await store.update_attempt(taken.rollout_id, taken.attempt.attempt_id, status="succeeded")

    with_store(settings, work)


def answer(settings: Settings, sql: str, *params: Any) -> list[Any]:
    rows: list[Any] = ask_view(settings, sql, params=list(params))["rows"]
    return rows


def assembled(settings: Settings) -> dict[str, int]:
    sql = "SELECT run_id, count(*) FROM trajectories GROUP BY run_id"
    return {str(run): int(count) for run, count in answer(settings, sql)}


async def until(ask: Callable[[], Awaitable[object]], wanted: object) -> None:
    for _ in range(1_200):
        if await ask() == wanted:
            return
        await asyncio.sleep(0.1)
    assert await ask() == wanted, "after two minutes"


def write(path: Path) -> int:
    """A file of 50 kB; returns the bytes of its blocks."""
    private_folder(path.parent)
    path.write_bytes(os.urandom(50_000))
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return path.stat().st_blocks * 512


def test_a_deleted_run_is_gone_from_views_and_disk_and_the_others_are_as_they_were(
    kafka_servers: str, tmp_path: Path
) -> None:
    own = settings_of(kafka_servers, tmp_path)
    files = {run: tmp_path / "checkpoints" / run / "step-1" / "weights" for run in ("run", "run-1", "run-11")}
    with Stack(own, services=["worker", "view"]) as stack:
        settings = stack.settings
        finish(settings, COUNTS)
        eventually(lambda: assembled(settings) == COUNTS)
        sizes = {run: write(path) for run, path in files.items()}
        with closing(ViewClient(settings)) as view:
            view.wait_for("now")
        before = dict(answer(settings, BY_RUN))
        all_spans = "SELECT rollout_id, log_offset FROM attempts_closed_raw ORDER BY ALL"
        rollouts = [row[0] for row in answer(settings, "SELECT rollout_id FROM rollouts WHERE run_id = 'run-1'")]
        kept_closings = [row for row in answer(settings, all_spans) if row[0] not in rollouts]

        done = delete_run(settings, "run-1")

        assert (done.checkpoint_bytes, done.rollouts) == (sizes["run-1"], 3)
        eventually(lambda: answer(settings, "FROM rollout_states WHERE run_id = 'run-1'") == [])
        left = dict(answer(settings, BY_RUN))
        assert left == {run: count for run, count in before.items() if run != "run-1"}
        assert answer(settings, all_spans) == kept_closings
        assert [path.exists() for path in files.values()] == [True, False, True]
        assert "run-1 " not in lightstream(settings, "runs")
        told = lightstream(settings, "runs", "delete", "run-1", "--yes")
        assert "0 B of checkpoints" in told, "said again"
        finish(settings, {"run-1": 2})
        eventually(lambda: assembled(settings) == COUNTS | {"run-1": 2})
    database = default_path(settings)
    database.unlink()
    with Stack(own, services=["worker", "view"]) as stack:
        settings = stack.settings
        eventually(lambda: not ask_view(settings, "SELECT 1").get("rebuilding"))
        rebuilt = dict(answer(settings, BY_RUN))
        assert {run: count for run, count in rebuilt.items() if run != "run-1"} == left
        assert assembled(settings)["run-1"] == 2
        assert answer(settings, "SELECT count(*) FROM rollout_states WHERE rollout_id = ?", rollouts[0]) == [[0]]


def test_a_run_is_deleted_while_no_view_runs_and_again_after_the_command_was_killed(
    kafka_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = settings_of(kafka_servers, tmp_path)
    weights = tmp_path / "checkpoints" / "a" / "weights"
    with Stack(own, services=["worker", "view"]) as stack:
        finish(stack.settings, {"a": 1, "b": 1})
        eventually(lambda: assembled(stack.settings) == {"a": 1, "b": 1})
    size = write(weights)

    def killed(folder: Path) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(command, "_delete_folder", killed)
        with pytest.raises(KeyboardInterrupt):
            delete_run(own, "a")
    assert weights.exists()
    assert delete_run(own, "a").checkpoint_bytes == size
    with Stack(own, services=["view"]) as stack:
        eventually(lambda: assembled(stack.settings) == {"b": 1})
        assert answer(stack.settings, "SELECT DISTINCT run_id FROM rollouts") == [["b"]]


def test_a_run_that_trains_or_has_open_rollouts_is_not_deleted(kafka_servers: str, tmp_path: Path) -> None:
    own = settings_of(kafka_servers, tmp_path)

    async def enqueue(store: KafkaLightningStore) -> None:
        await store.enqueue_many_rollouts([EnqueueRolloutRequest(input=0, run_id="open")])

    with Stack(own, services=["worker"]) as stack:
        settings = stack.settings
        with_store(settings, enqueue)
        with pytest.raises(RunInUseError, match="1 rollouts of run 'open' are not over") as told:
            delete_run(settings, "open")
        assert "lightstream runs cancel open" in told.value.next_step
        with (
            RunLock(settings, trainer_id="t", run_id="trains"),
            pytest.raises(TrainingError, match="'trains' is being trained by process"),
        ):
            delete_run(settings, "trains")
        with pytest.raises(RunInUseError, match="belong to no run"):
            delete_run(settings, "")
        assert delete_run(settings, "train").rollouts == 0, "a run of a like name is another"
        with pytest.raises(TrainingError, match=r"run 'train' was deleted at .* by `lightstream runs delete`"):
            KafkaLedger(settings, trainer_id="train", run_id="train").open()
        KafkaLedger(settings, trainer_id="trains", run_id="trains").open()


def test_stores_know_no_resources_of_a_deleted_run(kafka_servers: str, tmp_path: Path) -> None:
    settings = settings_of(kafka_servers, tmp_path)

    def resources(run: str) -> ResourcesRecord:
        changes = {"resources_id": f"{run}@1", "run_id": run, "version": 1, "write_ids": []}
        return example_of(ResourcesRecord).model_copy(update=changes)

    with Stack(settings, services=["worker", "view"]) as stack:
        own = stack.settings
        with closing(KafkaPublisher(own)) as publisher:
            for run in ("kept", "gone"):
                publisher.publish(RESOURCES, f"{run}@1", resources(run)).result(300)

        async def ids(store: KafkaLightningStore) -> tuple[str | None, bool, int]:
            latest = await store.get_latest_resources()
            gone = await store.get_resources_by_id("gone@1")
            return latest.resources_id if latest else None, gone is not None, len(await store.query_resources())

        async def before_and_after(store: KafkaLightningStore) -> None:
            assert await ids(store) == ("gone@1", True, 2)
            await asyncio.to_thread(delete_run, own, "gone")
            await until(lambda: ids(store), ("kept@1", False, 1))

        async def of_a_new_one(store: KafkaLightningStore) -> None:
            assert await ids(store) == ("kept@1", False, 1)

        with_store(own, before_and_after)
        with_store(own, of_a_new_one)
        read = read_topic(own, RESOURCES, Codec(), group_id="tests")
        assert "kept" in [record.run_id for _, record in read if isinstance(record, ResourcesRecord)]
        eventually(lambda: answer(own, "SELECT run_id FROM resources") == [["kept"]])
        assert answer(own, "SELECT count(*) FROM dead_letters") == [[0]]
