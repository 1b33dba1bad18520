"""``lightstream runs``, beside a worker and a view on a real Kafka."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

from lightstream.runtime.settings import Settings
from lightstream.schemas.types import EnqueueRolloutRequest
from lightstream.store_views.stores import KafkaLightningStore
from lightstream.up import Stack
from tests.support.runs_command import cells_of_run, lightstream
from tests.support.waiting import eventually


def test_what_a_dead_run_left_is_shown_and_cancelled(kafka_servers: str, tmp_path: Path) -> None:
    settings = Settings.load(
        kafka_bootstrap_servers=kafka_servers, topic_prefix=f"t{uuid.uuid4().hex[:12]}.", data_dir=tmp_path
    )

    async def enqueue(settings: Settings) -> None:
        store = KafkaLightningStore(settings)
        await store.start()
        try:
            for run, count in (("it's dead", 5), ("live", 2)):
                await store.enqueue_many_rollouts([EnqueueRolloutRequest(input=n, run_id=run) for n in range(count)])
            assert await store.dequeue_rollout(timeout_s=60, run_id="it's dead") is not None
        finally:
            await store.close()

    with Stack(settings, services=["worker", "view"]) as stack:
        asyncio.run(enqueue(stack.settings))
        eventually(lambda: cells_of_run(stack.settings, "it's dead")[3:8] == ["4", "1", "0", "0", "0"])
        assert "5 rollouts of run" in lightstream(stack.settings, "runs", "cancel", "it's dead")
        eventually(lambda: cells_of_run(stack.settings, "it's dead")[3:8] == ["0", "0", "0", "0", "5"])
        assert cells_of_run(stack.settings, "live")[3:8] == ["2", "0", "0", "0", "0"]
