"""Who may ask, and how much at once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from lightstream.schemas.errors import SettingsError, StoreError
from lightstream.store_views.stores import InMemoryLightningStore
from lightstream.store_views.stores.http import LightningStoreClient

from .support import local_settings, served


@pytest.mark.parametrize(("token", "problem"), [("wrong", "a token other than its own"), (None, "no token")])
def test_a_token_that_is_wrong_or_missing_is_refused_at_once(
    behind: InMemoryLightningStore, tmp_path: Path, token: str | None, problem: str
) -> None:
    with served(behind, local_settings(tmp_path, store_token="secret")) as server:
        client = LightningStoreClient(
            server.endpoint, settings=local_settings(tmp_path), token=token, patience_s=float("inf")
        )

        async def scenario() -> None:
            for asked in (client.start(), client.enqueue_rollout(1), client.get_latest_resources()):
                with pytest.raises(SettingsError, match=problem) as refused:
                    await asked
                assert "LIGHTSTREAM_STORE_TOKEN" in str(refused.value)
                assert "secret" not in str(refused.value)
            await client.close()

        asyncio.run(scenario())
        assert behind.history() == []
        said = httpx.get(f"{server.endpoint}/v1/agl/statistics", timeout=60)
        assert (said.status_code, said.headers["www-authenticate"]) == (401, "Bearer")
        assert httpx.get(f"{server.endpoint}/v1/agl/nonsense", timeout=60).status_code == 401, (
            "routes are not told either"
        )
        assert httpx.get(f"{server.endpoint}/v1/agl/health", timeout=60).status_code == 200


def test_the_token_of_the_settings_is_taken(behind: InMemoryLightningStore, tmp_path: Path) -> None:
    settings = local_settings(tmp_path, store_token="sécret")
    with served(behind, settings):
        client = LightningStoreClient(settings=settings)

        async def scenario() -> None:
            await client.start()
            assert (await client.enqueue_rollout(1)).status == "queuing"
            await client.close()

        asyncio.run(scenario())


def test_a_body_over_the_limit_is_refused_with_the_number(behind: InMemoryLightningStore, tmp_path: Path) -> None:
    settings = local_settings(tmp_path, store_request_bytes_max=100_000)
    with served(behind, settings) as server:
        url = f"{server.endpoint}/v1/agl/queues/rollouts/enqueue"
        big = b"x" * 20_000_000
        for content in (big, iter([big[:60_000], big])):
            said = httpx.post(url, content=content, timeout=60)
            assert said.status_code == 413
            assert "100,000" in said.json()["detail"]
        client = LightningStoreClient(settings=settings)

        async def scenario() -> None:
            with pytest.raises(StoreError, match="100,000"):
                await client.enqueue_rollout("x" * 20_000_000)
            assert (await client.enqueue_rollout("x" * 50_000)).status == "queuing"
            await client.close()

        asyncio.run(scenario())
        assert len(behind.history()) == 1
