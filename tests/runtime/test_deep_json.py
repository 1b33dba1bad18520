"""JSON that is nested too deeply, or starts and never ends, is a 4xx of every server, and no recursion error."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from starlette.types import ASGIApp

from lightstream.producers.llm_proxy.app import create_app as proxy_app
from lightstream.producers.llm_proxy.balancing_upstream import BalancingUpstream
from lightstream.producers.llm_proxy.request_body import UnreadableBodyError, json_object
from lightstream.runtime.kafka import KafkaPublisher
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import QueryError
from lightstream.store_views.server.admission import parse_request
from lightstream.store_views.server.statement import QueryLimits
from lightstream.store_views.stores import InMemoryLightningStore
from lightstream.store_views.stores.http.app import create_app as store_app

BODIES = {
    "60 MB of brackets": b"[" * 60_000_000,
    "deep": b'{"a":' * 600 + b"1" + b"}" * 600,
    "deep, with half of a surrogate pair": b'{"a":' * 600 + b'"\\ud800"' + b"}" * 600,
    "deep in lists": b'{"rollouts": [{"input": ' + b"[" * 900 + b"]" * 900 + b"}]}",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("server", ["proxy", "store"])
async def test_a_server_refuses_it(tmp_path: Path, server: str, body: bytes) -> None:
    """At the proxy a path without a rollout's, of which nothing would be recorded."""
    settings = Settings.load(
        data_dir=tmp_path,
        kafka_bootstrap_servers="127.0.0.1:1",
        publish_timeout_s=0.1,
        llm_request_bytes_max=64 * 1024 * 1024,
    )
    app: ASGIApp
    if server == "proxy":
        app = proxy_app(settings, BalancingUpstream(settings, []), KafkaPublisher(settings))
        path = "/v1/messages/count_tokens"
    else:
        app, path = store_app(InMemoryLightningStore(), settings), "/v1/agl/queues/rollouts/enqueue"
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=300) as client:
        answer = await client.post(path, content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422)


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_it_is_no_request_of_an_agent_or_reader(body: bytes) -> None:
    with pytest.raises(UnreadableBodyError, match="recursion limit"):
        json_object(body)
    with pytest.raises(QueryError):
        parse_request(body, QueryLimits())
