"""Routes that an installed package adds to every store server."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from lightstream.schemas.errors import SettingsError
from lightstream.store_views.stores import InMemoryLightningStore
from lightstream.store_views.stores.http import LightningStoreServer

from .support import local_settings, served

MODULE = """
from fastapi import APIRouter
from lightstream.store_views.stores.http import Store, StoreRoute

router = APIRouter(route_class=StoreRoute)


@router.get("/how-many")
async def how_many(store: Store) -> int:
    return len(await store.query_rollouts())


@router.get("/v1/agl/health")
async def shadow() -> str:
    return "not the server's own"


ROUTES = router.routes
"""


def install(folder: Path, name: str, value: str) -> None:
    """A distribution with one entry point for routes."""
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[lightstream.store_routes]\n{name} = {value}\n")


def test_they_ask_the_store_beside_the_servers_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "added_routes_for_a_test.py").write_text(MODULE)
    install(tmp_path, "counting", "added_routes_for_a_test:ROUTES")
    monkeypatch.syspath_prepend(tmp_path)
    with served(InMemoryLightningStore(), local_settings(tmp_path)) as server:
        httpx.post(f"{server.endpoint}/v1/agl/rollouts", json={"input": "task"}).raise_for_status()
        assert httpx.get(f"{server.endpoint}/how-many").json() == 1
        assert httpx.get(f"{server.endpoint}/v1/agl/health").json() == {"status": "ok"}
        assert httpx.get(f"{server.endpoint}/task").json()["is_available"] is False, "two packages add theirs"


@pytest.mark.parametrize("value", ["no_such_module_anywhere:ROUTES", "json:NO_SUCH_ROUTES"])
def test_a_package_that_cannot_be_loaded_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    install(tmp_path, "broken", value)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SettingsError, match=f"'broken'.*{value}"):
        LightningStoreServer(InMemoryLightningStore(), port=0, settings=local_settings(tmp_path))
