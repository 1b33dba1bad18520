"""Web pages that are open on the user's machine can order nothing of any server of ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import ASGIApp

from lightstream.producers.llm_proxy.app import create_app as proxy_app
from lightstream.producers.llm_proxy.balancing_upstream import BalancingUpstream
from lightstream.producers.otlp.gateway.http_app import create_app as gateway_app
from lightstream.runtime.kafka import KafkaPublisher
from lightstream.runtime.settings import Settings
from lightstream.store_views.stores import InMemoryLightningStore
from lightstream.store_views.stores.http.app import create_app as store_app

ENQUEUE = "/v1/agl/queues/rollouts/enqueue"
EVIL = "http://evil.example"


def _proxy(settings: Settings) -> ASGIApp:
    return proxy_app(settings, BalancingUpstream(settings, []), KafkaPublisher(settings))


def _gateway(settings: Settings) -> ASGIApp:
    def no_intake() -> Any:
        raise AssertionError("nothing is taken in")

    return gateway_app(settings, no_intake)


def _store(settings: Settings) -> ASGIApp:
    return store_app(InMemoryLightningStore(), settings)


APPS: list[tuple[Callable[[Settings], ASGIApp], str]] = [
    (_proxy, "/v1/chat/completions"),
    (_gateway, "/v1/traces"),
    (_store, ENQUEUE),
]


async def _post(app: ASGIApp, path: str, host: str = "127.0.0.1:1", **headers: str) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=f"http://{host}") as client:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return await client.post(path, content=b'{"rollouts": [{"input": {"x": 1}}]}', headers=sent)


@pytest.mark.parametrize(("make", "path"), APPS, ids=["proxy", "gateway", "store"])
async def test_a_foreign_page_is_refused(make: Callable[[Settings], ASGIApp], path: str, tmp_path: Path) -> None:
    app = make(Settings.load(data_dir=tmp_path))
    for refused in (
        await _post(app, path, content_type="application/json", origin=EVIL),
        await _post(app, path, host="evil.example", content_type="application/json", origin=EVIL),
        await _post(app, path, host="evil.example", content_type="application/json"),
    ):
        assert refused.status_code == 403
        assert "evil.example" in refused.text
    many = {f"x_{number}": "1" for number in range(200)}
    assert (await _post(app, path, content_type="application/json", **many)).status_code in (400, 431)


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
async def test_what_a_page_may_send_without_asking_is_refused(kind: str, tmp_path: Path) -> None:
    store = InMemoryLightningStore()
    app = store_app(store, Settings.load(data_dir=tmp_path))
    refused = await _post(app, ENQUEUE, content_type=kind)
    assert refused.status_code == 415
    assert "application/json" in refused.json()["detail"]
    assert (await store.query_rollouts()).total == 0


@pytest.mark.parametrize("host", ["localhost:1", "proxy:4000", "10.0.0.7", "host.docker.internal", "store.svc.local"])
async def test_programs_ask_under_the_names_of_machines_and_containers(host: str, tmp_path: Path) -> None:
    app = _store(Settings.load(data_dir=tmp_path))
    assert (await _post(app, ENQUEUE, host=host, content_type="application/json")).status_code == 201
    assert (await _post(app, ENQUEUE, host=host)).status_code == 201, "some programs name no type"


async def test_other_names_are_let_in_by_a_setting_or_a_token(tmp_path: Path) -> None:
    settings = Settings.load(data_dir=tmp_path, allowed_hosts="store.example.com")
    assert (await _post(_store(settings), ENQUEUE, host="store.example.com")).status_code == 201
    guarded = _store(Settings.load(data_dir=tmp_path, store_token="s3cret"))
    answer = await _post(guarded, ENQUEUE, host="store.example.com", authorization="Bearer s3cret")
    assert answer.status_code == 201


async def test_pages_that_cors_allows_may_ask(tmp_path: Path) -> None:
    app = store_app(
        InMemoryLightningStore(), Settings.load(data_dir=tmp_path), cors_allow_origins=["https://ours.example"]
    )
    ours, theirs = [
        await _post(app, ENQUEUE, content_type="application/json", origin=origin)
        for origin in ("https://ours.example", EVIL)
    ]
    assert (ours.status_code, theirs.status_code) == (201, 403)
