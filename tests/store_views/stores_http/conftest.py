"""A store in memory, served."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from lightstream.store_views.stores import InMemoryLightningStore
from lightstream.store_views.stores.http import LightningStoreServer

from .support import local_settings, served


@pytest.fixture
def behind() -> Iterator[InMemoryLightningStore]:
    """What is served."""
    store = InMemoryLightningStore()
    yield store
    asyncio.run(store.close())


@pytest.fixture
def server(behind: InMemoryLightningStore, tmp_path: Path) -> Iterator[LightningStoreServer]:
    """A server of this test's own, without a token."""
    with served(behind, local_settings(tmp_path)) as running:
        yield running


@pytest.fixture
def wire(server: LightningStoreServer) -> Iterator[httpx.Client]:
    """Requests as they are, under the prefix."""
    with httpx.Client(base_url=f"{server.endpoint}/v1/agl", timeout=60) as client:
        yield client
