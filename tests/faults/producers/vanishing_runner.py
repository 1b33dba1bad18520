"""A Runner whose agent ends the whole process right after a model's answer: ``python -m …vanishing_runner``.

Before that it notes the answer's id, in a file named after the attempt.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

from openai import AsyncOpenAI

from lightstream.producers import Runner, rollout
from lightstream.runtime.services import Service, announce
from lightstream.runtime.settings import Settings
from lightstream.schemas.types import AttemptedRollout
from lightstream.store_views.stores import KafkaLightningStore

NAME = "vanishing"
ANSWERS = "answers"
EXIT_STATUS = 9


@rollout
async def vanish(task: Any, rollout: AttemptedRollout) -> None:
    """Nothing is flushed, closed or reported."""
    attempt_id = rollout.attempt.attempt_id
    base_url = f"{task['proxy']}/rollout/{rollout.rollout_id}/attempt/{attempt_id}/v1"
    async with AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0) as client:
        answer = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
        folder = Settings.load().data_dir / ANSWERS
        folder.mkdir(exist_ok=True)
        (folder / attempt_id).write_text(answer.id, "utf-8")
        os._exit(EXIT_STATUS)


async def main() -> None:
    """Work until SIGTERM, or until the agent has its way."""
    settings = Settings.load()
    store = KafkaLightningStore(settings)
    await store.start()
    runner = Runner(store, vanish, settings=settings)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, runner.stop)
    announce(settings, Service(NAME, "", os.getpid(), time.time_ns()))
    await runner.run()
    await store.close()


if __name__ == "__main__":
    asyncio.run(main())
