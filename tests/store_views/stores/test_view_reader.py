"""Closing a store that waits for a view which does not answer."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import ServiceUnavailableError
from lightstream.store_views.stores.kafka.query_sql import Parameters, Statement
from lightstream.store_views.stores.kafka.view import ViewReader

ONE = Statement("SELECT 1", Parameters())


def test_who_asks_a_silent_view_is_told_that_the_store_was_closed(tmp_path: Path) -> None:
    async def scenario(port: int) -> None:
        reader = ViewReader(Settings.load(view_url=f"http://127.0.0.1:{port}", data_dir=tmp_path))
        asking = [asyncio.create_task(reader.ask(ONE, {})) for _ in range(10)]  # more than are asked at once
        accepted, _ = await asyncio.to_thread(silent.accept)
        await reader.close()
        for task in asking:
            with pytest.raises(ServiceUnavailableError, match="closed"):
                await asyncio.wait_for(task, 300)
        with pytest.raises(ServiceUnavailableError, match="closed"):
            await reader.ask(ONE, {})
        accepted.close()

    with socket.create_server(("127.0.0.1", 0)) as silent:
        asyncio.run(scenario(silent.getsockname()[1]))
