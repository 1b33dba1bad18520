"""A stack with a gateway: the store names it, and a trace that named no rollout is attached to one."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from lightstream.runtime.services import discover
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import NotFoundError, ServiceUnavailableError, StoreError
from lightstream.store_views.attach_trace import attach_trace
from lightstream.store_views.client import ViewClient
from lightstream.store_views.stores import KafkaLightningStore
from lightstream.store_views.stores.http import LightningStoreClient, LightningStoreServer
from lightstream.up import Stack
from tests.support.waiting import eventually

CALL: dict[str, Any] = {
    "gen_ai.operation.name": "chat",
    "lightstream.prompt_token_ids": [1, 2, 3],
    "lightstream.response_token_ids": [4, 5],
    "lightstream.response_logprobs": [-0.5, -0.25],
}


@pytest.fixture
def stack(settings: Settings) -> Iterator[Stack]:
    free = settings.model_copy(update={"gateway_port": 0, "gateway_grpc_port": 0})
    with Stack(free, services=("worker", "view", "gateway")) as stack:
        yield stack


def call_spans(endpoint: str, count: int) -> str:
    """Send some calls as one trace, by the stock exporter; returns the trace's id."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(endpoint, timeout=60)))
    tracer = provider.get_tracer("agent")
    with tracer.start_as_current_span("agent") as root:
        for number in range(count):
            tracer.start_span("chat", attributes={**CALL, "gen_ai.response.id": f"resp-{number}"}).end()
    return f"{root.get_span_context().trace_id:032x}"


def test_a_trace_is_attached_to_a_rollout(stack: Stack) -> None:
    settings = stack.settings
    view = ViewClient(settings)

    async def scenario() -> None:
        store = KafkaLightningStore(settings)
        await store.start()
        endpoint = store.otlp_traces_endpoint()
        assert endpoint == f"{discover(settings, 'gateway').address}/v1/traces"
        assert store.capabilities.get("otlp_traces") is True
        await _ask_through_a_server(store, settings, endpoint)
        trace_id = await asyncio.to_thread(call_spans, endpoint, 2)
        view.wait_for("now")
        assert fates(view) == [("dropped", "no_rollout", 2)]

        with pytest.raises(NotFoundError, match="no attempt"):
            attach_trace(settings, trace_id, "stranger")
        rollout = await store.start_rollout({"q": 1}, rollout_id="it's one")
        other = await store.start_rollout({"q": 1})
        with pytest.raises(NotFoundError, match="without a rollout"):
            attach_trace(settings, "ab" * 16, rollout.rollout_id)
        with pytest.raises(StoreError, match="32 hex"):
            attach_trace(settings, "ab", rollout.rollout_id)
        done = attach_trace(settings, trace_id.upper(), rollout.rollout_id)
        assert (done.spans, done.attempt_id, done.is_open) == (3, rollout.attempt.attempt_id, True)
        assert attach_trace(settings, trace_id, rollout.rollout_id, rollout.attempt.attempt_id).spans == 0
        with pytest.raises(StoreError, match="is attached to attempt"):
            attach_trace(settings, trace_id, other.rollout_id)

        await store.update_attempt(rollout.rollout_id, rollout.attempt.attempt_id, status="succeeded")
        await store.wait_for_rollouts(rollout_ids=[rollout.rollout_id], timeout=60)
        assert [span.trace_id for span in await store.query_spans(rollout.rollout_id)] == [trace_id] * 3
        await store.close()

    asyncio.run(scenario())
    eventually(lambda: view.query("SELECT count(*) FROM trajectories", "now").scalar() == 1, what="it is assembled")
    triplets = view.query("SELECT rollout_id, prompt_token_ids, response_token_ids FROM triplets").rows
    assert triplets == [["it's one", [1, 2, 3], [4, 5]]] * 2
    assert fates(view) == [("triplet", None, 2)]
    assert view.query("SELECT balanced FROM call_accounting").scalar() is True
    assert view.query("SELECT count(*) FROM spans").scalar() == 3
    view.close()


def test_the_command_says_what_follows(stack: Stack) -> None:
    settings = stack.settings

    async def attempt_that_is_over() -> tuple[str, str]:
        store = KafkaLightningStore(settings)
        await store.start()
        rollout = await store.start_rollout({"q": 1})
        await store.update_attempt(rollout.rollout_id, rollout.attempt.attempt_id, status="succeeded")
        endpoint = store.otlp_traces_endpoint()
        await store.close()
        return rollout.rollout_id, endpoint

    rollout_id, endpoint = asyncio.run(attempt_that_is_over())
    trace_id = call_spans(endpoint, 1)
    command = [sys.executable, "-m", "lightstream.cli", "attach-trace", trace_id, "--rollout"]
    environment = os.environ | settings.to_environment()
    for wanted, status, said in (
        (rollout_id, 0, "2 spans of trace"),
        (rollout_id, 0, "belong to attempt"),
        ("none", 1, "has no attempt"),
    ):
        done = subprocess.run([*command, wanted], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stderr
        assert said in done.stdout + done.stderr
    view = ViewClient(settings)
    eventually(lambda: fates(view) == [("triplet", None, 1)], what="a revision has the call")
    assert view.query("SELECT count(*) FROM trajectories WHERE revision > 0 AND call_count = 1").scalar() == 1
    view.close()


def fates(view: ViewClient) -> list[tuple[Any, ...]]:
    rows = view.query("SELECT fate, reason, count(*) FROM llm_calls GROUP BY ALL", "now").rows
    return [tuple(row) for row in rows]


async def _ask_through_a_server(store: KafkaLightningStore, settings: Settings, endpoint: str) -> None:
    """A client of the store's server hears the same."""
    server = LightningStoreServer(store, "127.0.0.1", 0, settings=settings)
    await server.start()
    client = LightningStoreClient(server.endpoint)
    await client.start()
    assert client.otlp_traces_endpoint() == endpoint
    assert client.capabilities.get("otlp_traces") is True
    await client.close()
    await server.stop()


def test_without_a_gateway_there_is_no_endpoint(settings: Settings) -> None:
    store = KafkaLightningStore(settings)
    assert store.capabilities.get("otlp_traces") is False
    with pytest.raises(ServiceUnavailableError, match="lightstream gateway"):
        store.otlp_traces_endpoint()
    named = settings.model_copy(update={"gateway_url": "http://elsewhere:4318/"})
    assert KafkaLightningStore(named).otlp_traces_endpoint() == "http://elsewhere:4318/v1/traces"
    client = LightningStoreClient("http://127.0.0.1:1", settings=named)
    assert client.otlp_traces_endpoint() == "http://elsewhere:4318/v1/traces"
