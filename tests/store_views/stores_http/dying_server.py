"""A store server that is killed between a write and its answer: the first call of a method that its argument names."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

from lightstream.runtime.settings import Settings
from lightstream.store_views.stores import KafkaLightningStore
from lightstream.store_views.stores.http import LightningStoreServer


async def main(method: str) -> None:
    """Serve until then."""
    settings = Settings.load()
    store = KafkaLightningStore(settings)
    await store.start()
    write = getattr(store, method)

    async def write_and_die(*arguments: Any, **named: Any) -> None:
        await write(*arguments, **named)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(store, method, write_and_die)
    server = LightningStoreServer(store, settings=settings)
    await server.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
