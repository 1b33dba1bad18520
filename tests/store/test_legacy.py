"""The first protocol (``/task``, ``/resources``, ``/rollout``) on every store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider

from lightstream.agl import AgentLightningClient, AgentLightningServer, RolloutLegacy, Task
from lightstream.schemas.errors import SettingsError, StoreError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import LLM, PromptTemplate, Triplet
from tests.store_views.stores_http.support import local_settings

from .support import unique

TRIPLETS = [
    Triplet(prompt={"token_ids": [1, 2]}, response={"token_ids": [3], "logprobs": [-0.5]}, reward=0.25),
    Triplet(prompt={"token_ids": [1, 2, 3]}, response={"token_ids": [4, 5]}, metadata={"response_id": "r-1"}),
]


@asynccontextmanager
async def opened(
    store: LightningStore, folder: Path, timeout_s: float = 300.0
) -> AsyncGenerator[tuple[AgentLightningServer, AgentLightningClient]]:
    server = AgentLightningServer(port=0, task_timeout_seconds=timeout_s, store=store, settings=local_settings(folder))
    await server.start()
    client = AgentLightningClient(server.endpoint, poll_interval=0.2, worker_id=unique("legacy"))
    try:
        yield server, client
    finally:
        client.close()
        await server.stop()


def old_agent(client: AgentLightningClient, count: int) -> list[Task]:
    """The loop of an agent as it was first written: poll, look up the prompt, work, report."""
    done: list[Task] = []
    for _ in range(count):
        task = client.poll_next_task()
        assert task is not None
        update = client.get_resources_by_id(task.resources_id) if task.resources_id else client.get_latest_resources()
        assert update is not None
        prompt = update.resources["prompt"]
        assert isinstance(prompt, PromptTemplate)
        said = prompt.format(name=task.input["name"])
        client.post_rollout(
            RolloutLegacy(
                rollout_id=task.rollout_id,
                task=task,
                final_reward=float(len(said)),
                triplets=TRIPLETS,
                logs=[said],
                metadata={"agent": "old"},
            )
        )
        done.append(task)
    return done


async def test_an_old_agents_loop(store: LightningStore, tmp_path: Path) -> None:
    async with opened(store, tmp_path) as (server, client):
        named = await server.update_resources({"prompt": PromptTemplate(template="Hello {name}")})
        await server.update_resources(
            {"prompt": PromptTemplate(template="Hi {name}"), "llm": LLM(endpoint="e", model="m")}
        )
        first = await server.queue_task({"name": "Ada"}, "train", named, {"line": 7})
        second = await server.queue_task({"name": "Bob"}, "val")
        assert await server.get_completed_rollout(first) is None
        assert await server.retrieve_completed_rollouts() == []
        working = asyncio.create_task(asyncio.to_thread(old_agent, client, 2))
        done = await server.poll_completed_rollout(first, timeout=60)
        tasks = {task.rollout_id: task for task in await working}
        one, two = tasks[first], tasks[second]
        assert done is not None
        assert (done.final_reward, done.logs, done.metadata) == (9.0, ["Hello Ada"], {"agent": "old"})
        assert (done.task, done.triplets) == (one, TRIPLETS)
        assert (one.mode, one.num_claims, one.resources_id, one.metadata["line"]) == ("train", 1, named, 7)
        assert two.mode == "val"
        assert [rollout.rollout_id for rollout in await server.retrieve_completed_rollouts()] == [second]
        assert await server.retrieve_completed_rollouts() == []
        assert client.task_count == 2
    kept = await store.get_rollout_by_id(first)
    assert kept is not None
    assert kept.status == "succeeded"


async def test_triplets_become_calls_and_rewards(store: LightningStore, tmp_path: Path) -> None:
    async with opened(store, tmp_path) as (_, client):
        began = await store.start_rollout(1)
        report = RolloutLegacy(rollout_id=began.rollout_id, final_reward=1.0, triplets=TRIPLETS, trace=[{"name": "x"}])
        answer = await client.post_rollout_async(report)
        assert answer is not None
        assert (answer["status"], answer["data"]["spans"]) == ("ok", 5)
        assert (await client.post_rollout_async(report)) == answer, "reported twice is reported once"
    spans = list(await store.query_spans(began.rollout_id))
    assert len(spans) == 5
    call, reward, _, total, _ = (span.attributes for span in spans)
    assert call["lightstream.response_token_ids"] == [3]
    assert (reward["agentlightning.reward.0.value"], reward["agentlightning.link.0.value_match"]) == (
        0.25,
        spans[0].span_id,
    )
    assert (total["agentlightning.reward.0.value"], "agentlightning.link.0.key_match" in total) == (1.0, False)


async def test_a_trace_becomes_spans_when_there_are_no_triplets(store: LightningStore, tmp_path: Path) -> None:
    tracer = TracerProvider().get_tracer("agent")
    inside = tracer.start_as_current_span("inner", attributes={"n": 3})
    with tracer.start_as_current_span("outer") as outer, inside as inner:
        inner.add_event("thought", {"deep": True})
    assert isinstance(inner, ReadableSpan)
    assert isinstance(outer, ReadableSpan)
    trace: list[Any] = [json.loads(inner.to_json() or ""), json.loads(outer.to_json() or ""), {"name": "no span"}]
    async with opened(store, tmp_path) as (_, client):
        began = await store.start_rollout(1)
        answer = await client.post_rollout_async(RolloutLegacy(rollout_id=began.rollout_id, trace=trace))
        assert answer is not None
        assert answer["data"]["unreadable_spans"] == 1
    first, second, _ = await store.query_spans(began.rollout_id)
    assert (first.name, first.attributes, first.parent_id) == ("inner", {"n": 3}, second.span_id)
    assert (first.events[0].name, first.events[0].attributes) == ("thought", {"deep": True})
    assert second.start_time == pytest.approx((outer.start_time or 0) / 1e9, abs=1e-5)


async def test_what_does_not_exist(store: LightningStore, tmp_path: Path) -> None:
    async with opened(store, tmp_path) as (server, client):
        assert await client.get_resources_by_id_async("nonexistent") is None
        with pytest.raises(StoreError, match="Rollout nonexistent not found"):
            await client.post_rollout_async(RolloutLegacy(rollout_id="nonexistent"))
        waiting = await server.queue_task(1)
        with pytest.raises(StoreError, match=f"No attempts found for rollout {waiting}"):
            await client.post_rollout_async(RolloutLegacy(rollout_id=waiting))
        unclaimed = await store.get_rollout_by_id(waiting)
        assert unclaimed is not None
        assert unclaimed.status == "queuing"
        async with httpx.AsyncClient(base_url=server.endpoint, timeout=60) as wire:
            said = await wire.get("/resources/nonexistent")
            assert (said.status_code, said.json()["detail"]) == (404, "Resource ID 'nonexistent' not found.")
            assert (await wire.post("/rollout", json={"final_reward": 1})).status_code == 422
            assert (await wire.get("/task?timeout_s=many")).status_code == 422
            assert (await wire.post("/task")).status_code == 405
            assert (await wire.get("/task")).json()["task"]["rollout_id"] == waiting
            assert (await wire.get("/task")).json() == {"is_available": False, "task": None}


async def test_a_silent_task_is_handed_out_again_and_a_late_report_changes_nothing(
    store: LightningStore, tmp_path: Path
) -> None:
    async with opened(store, tmp_path, timeout_s=0.3) as (server, client):
        rollout_id = await server.queue_task(1)
        lost = await client.poll_next_task_async()
        again = await client.poll_next_task_async()
        assert lost is not None
        assert again is not None
        assert (again.rollout_id, again.num_claims) == (rollout_id, 2)
        late = await client.post_rollout_async(RolloutLegacy(rollout_id=rollout_id, task=lost, final_reward=0.0))
        assert late is not None
        report = RolloutLegacy(rollout_id=rollout_id, task=again, final_reward=1.0)
        while (answer := await client.post_rollout_async(report)) is None or answer["status"] != "ok":
            report.task = await client.poll_next_task_async()  # the machine was busy: claimed once more
        done = await server.poll_completed_rollout(rollout_id, timeout=60)
        assert done is not None
        assert done.final_reward == 1.0


async def test_a_rollout_that_another_runner_ended(store: LightningStore, tmp_path: Path) -> None:
    async with opened(store, tmp_path) as (server, _):
        began = await store.start_rollout({"x": 1})
        await store.update_attempt(began.rollout_id, "latest", "failed", error_type="ValueError", error_message="no")
        done = await server.get_completed_rollout(began.rollout_id)
        assert done is not None
        assert done.task is not None
        assert (done.final_reward, done.task.input) == (None, {"x": 1})
        assert done.metadata == {"status": "failed", "error_type": "ValueError", "error_message": "no"}


async def test_the_token_is_asked_for_here_too(tmp_path: Path) -> None:
    server = AgentLightningServer(port=0, settings=local_settings(tmp_path, store_token="secret"))
    await server.start()
    stranger = AgentLightningClient(server.endpoint)
    with pytest.raises(SettingsError, match="no token"):
        await stranger.poll_next_task_async()
    friend = AgentLightningClient(server.endpoint, token="secret")
    assert await friend.get_latest_resources_async() is None
    stranger.close()
    friend.close()
    await server.stop()
