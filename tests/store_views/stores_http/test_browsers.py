"""Pages of other origins, and what the server says of a query string."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from lightstream.store_views.stores import InMemoryLightningStore
from lightstream.store_views.stores.http import LightningStoreServer

from .support import local_settings

PAGE = "http://page.example"
ASKING = {"origin": PAGE, "access-control-request-method": "POST", "access-control-request-headers": "content-type"}


@pytest.mark.parametrize(("allowed", "is_allowed"), [(None, False), ("*", True), ([PAGE], True), (["http://x"], False)])
def test_origins_that_may_ask(tmp_path: Path, allowed: str | list[str] | None, is_allowed: bool) -> None:
    settings = local_settings(tmp_path, store_token="secret")
    server = LightningStoreServer(InMemoryLightningStore(), port=0, settings=settings, cors_allow_origins=allowed)
    asyncio.run(server.start())
    try:
        asked = httpx.options(f"{server.endpoint}/v1/agl/rollouts", headers=ASKING)
        headers = {"origin": PAGE, "authorization": "Bearer secret"}
        answer = httpx.get(f"{server.endpoint}/v1/agl/rollouts?limit=1", headers=headers)
    finally:
        asyncio.run(server.stop())
    assert answer.status_code == (200 if is_allowed else 403)
    assert (asked.status_code == 200) is is_allowed
    assert (answer.headers.get("access-control-allow-origin") in ("*", PAGE)) is is_allowed


def test_a_query_string_is_named_as_one(tmp_path: Path) -> None:
    server = LightningStoreServer(InMemoryLightningStore(), port=0, settings=local_settings(tmp_path))
    asyncio.run(server.start())
    try:
        answer = httpx.get(f"{server.endpoint}/v1/agl/rollouts?limit=many")
    finally:
        asyncio.run(server.stop())
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"] == ["query", "limit"]
