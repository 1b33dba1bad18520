"""A copy of the data folder, made while nothing runs, is all that a restore needs."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lightstream.cli.view_query import ask_view
from lightstream.runtime.settings import Settings
from lightstream.schemas.types import EnqueueRolloutRequest
from lightstream.store_views.client import ViewClient
from lightstream.store_views.materialiser import default_path
from lightstream.store_views.stores import KafkaLightningStore
from lightstream.store_views.tables import RAW_TABLES
from lightstream.up import Stack
from tests.support.waiting import eventually

OF_ROLLOUTS = ("rollout_events", "rollout_states", "attempts_opened_raw", "attempts_closed_raw", "trajectories_raw")


@pytest.mark.parametrize("with_view", [True, False], ids=["the view too", "without the view"])
def test_what_was_backed_up_is_there_again_after_the_folder_was_lost(tmp_path: Path, with_view: bool) -> None:
    settings = Settings.load(data_dir=tmp_path / "data")

    async def work(settings: Settings, runs: dict[str, int]) -> None:
        store = KafkaLightningStore(settings)
        await store.start()
        try:
            for run, count in runs.items():
                await store.enqueue_many_rollouts([EnqueueRolloutRequest(input=n, run_id=run) for n in range(count)])
                for _ in range(count):
                    taken = await store.dequeue_rollout(timeout_s=60, run_id=run)
                    assert taken is not None
                    await store.update_attempt(taken.rollout_id, taken.attempt.attempt_id, status="succeeded")
        finally:
            await store.close()

    def rows(stack: Stack, table: str) -> Any:
        return ask_view(stack.settings, f"FROM {table} ORDER BY log_partition, log_offset")["rows"]  # ours

    def caught_up(stack: Stack) -> None:
        with closing(ViewClient(stack.settings)) as view:
            view.wait_for("now")

    def assembled(stack: Stack) -> int:
        return int(ask_view(stack.settings, "SELECT count(*) FROM trajectories")["rows"][0][0])

    assert set(OF_ROLLOUTS) <= {table.name for table in RAW_TABLES}
    with Stack(settings, services=["worker", "view"]) as stack:
        asyncio.run(work(stack.settings, {"a": 2, "b": 1}))
        eventually(lambda: assembled(stack) == 3)
        caught_up(stack)
        before = {table: rows(stack, table) for table in OF_ROLLOUTS}
    backup = tmp_path / "backup"
    shutil.copytree(settings.data_dir, backup, symlinks=True)
    shutil.rmtree(settings.data_dir)
    shutil.copytree(backup, settings.data_dir, symlinks=True)
    if not with_view:
        shutil.rmtree(default_path(settings).parent)

    with Stack(settings, services=["worker", "view"]) as stack:
        eventually(lambda: not ask_view(stack.settings, "SELECT 1").get("rebuilding"))
        caught_up(stack)
        assert {table: rows(stack, table) for table in OF_ROLLOUTS} == before
        asyncio.run(work(stack.settings, {"b": 1}))
        eventually(lambda: assembled(stack) == 4)
