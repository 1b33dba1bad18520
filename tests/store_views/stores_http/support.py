"""A served store for a test."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lightstream.runtime.settings import Settings
from lightstream.schemas.interfaces import LightningStore
from lightstream.store_views.stores.http import LightningStoreServer


def local_settings(folder: Path, **values: Any) -> Settings:
    """Settings of a store server on any free port, announced in ``folder``."""
    return Settings.load(data_dir=folder, **values)


@contextmanager
def served(store: LightningStore, settings: Settings, port: int | None = None) -> Generator[LightningStoreServer]:
    """``store`` behind HTTP, until the block ends."""
    server = LightningStoreServer(store, port=port, settings=settings)
    asyncio.run(server.start())
    try:
        yield server
    finally:
        asyncio.run(server.stop())
