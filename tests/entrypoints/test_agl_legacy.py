"""Agents of Agent Lightning's first protocol: polled from a server, reported to it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import trace

import lightstream.agl as agl
from lightstream.agl.runner.legacy import LegacyAgentRunner
from lightstream.schemas.errors import NotFoundError, ServiceUnavailableError, SettingsError
from lightstream.schemas.types import Span

LLM = agl.LLM(endpoint="http://nowhere/v1", model="m")
WAIT_S = 60.0
CALL: dict[str, Any] = {"gen_ai.response.id": "c1", "prompt_token_ids": [1, 2], "response_token_ids": [3]}


def call() -> None:
    with trace.get_tracer("test").start_as_current_span("openai.chat.completion", attributes=CALL):
        pass


class InThread(agl.LitAgent[str]):
    """Of the first interface, with hooks of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Any] = []

    def training_rollout(self, task: str, rollout_id: str, resources: agl.NamedResources) -> Any:  # type: ignore[override]  # the first interface
        call()
        assert resources["main_llm"] == LLM
        return 0.5

    def validation_rollout(self, task: str, rollout_id: str, resources: agl.NamedResources) -> Any:  # type: ignore[override]  # the first interface
        raise ValueError(f"{task} in {rollout_id}")

    def on_rollout_start(self, task: agl.Task, runner: Any, tracer: agl.Tracer) -> None:
        self.told.append(task.rollout_id)
        raise OSError("a hook that fails costs nothing")

    def on_rollout_end(self, task: agl.Task, rollout: agl.RolloutLegacy, runner: Any, tracer: agl.Tracer) -> None:
        self.told.append(rollout.final_reward)


class InLoop(agl.LitAgent[str]):
    async def training_rollout_async(self, task: str, resources: agl.NamedResources, rollout: Any) -> None:
        assert (rollout.task.input, rollout.rollout_id) == (task, rollout.task.rollout_id)
        call()
        agl.emit_reward(0.25)

    async def validation_rollout_async(self, task: str, resources: agl.NamedResources, rollout: Any) -> Any:
        if task == "numbers":
            return [1, 2]
        raise ValueError(task)


def test_an_old_agent_and_a_server() -> None:
    """Two agents, of both interfaces, take turns at one server; a failure is reported as one."""

    async def served(agent: agl.LitAgent[str]) -> list[tuple[Any, ...]]:
        server = agl.AgentLightningServer(port=0)
        await server.start()
        try:
            await server.update_resources({"main_llm": LLM})
            ids = [await server.queue_task("one", "train"), await server.queue_task("two", "val")]
            trainer = agl.Trainer(max_rollouts=2)
            running = threading.Thread(target=lambda: trainer.fit(agent, server.endpoint))
            running.start()
            found: list[tuple[Any, ...]] = []
            for rollout_id in ids:
                report = await server.poll_completed_rollout(rollout_id)
                assert report is not None
                rollout = await server.store.get_rollout_by_id(rollout_id)
                assert rollout is not None
                tokens = [triplet.response["token_ids"] for triplet in report.triplets or ()]
                found.append((rollout.status, report.final_reward, tokens, report.metadata.get("error_type")))
            await asyncio.to_thread(running.join)
            return found
        finally:
            await server.stop()

    old = InThread()
    assert asyncio.run(served(old)) == [("succeeded", 0.5, [[3]], None), ("failed", None, [], "ValueError")]
    assert len(old.told) == 4
    assert asyncio.run(served(InLoop())) == [("succeeded", 0.25, [[3]], None), ("failed", None, [], "ValueError")]


def test_a_trace_without_calls_becomes_spans_of_the_rollout() -> None:
    """As reported by ``Span.model_dump``: a rollout whose agent made no call that could be trained on."""

    async def served() -> tuple[list[str], str]:
        server = agl.AgentLightningServer(port=0)
        await server.start()
        try:
            rollout_id = await server.queue_task("x")
            client = agl.AgentLightningClient(server.endpoint, poll_interval=0.2)

            @agl.rollout
            def agent(task: str) -> None:
                agl.emit_message(f"saw {task}")

            tracer = agl.OtelTracer()
            runner = LegacyAgentRunner(agent, client, tracer, agl.TracerTraceToTriplet(), max_tasks=1)
            assert await asyncio.to_thread(runner.iter) == 1
            client.close()
            tracer.close()
            spans: list[Span] = list(await server.store.query_spans(rollout_id))
            [message] = [span for span in spans if span.name == "agentlightning.message"]
            return [span.name for span in spans], str(agl.get_message_value(message))
        finally:
            await server.stop()

    names, message = asyncio.run(served())
    assert names[-1] == "agentlightning.rollout"
    assert message == "saw x"


def test_tasks_without_a_server() -> None:
    loader = agl.DevTaskLoader(["one", "two"], {"main_llm": LLM})
    with pytest.warns(DeprecationWarning, match="n_runners"), pytest.warns(DeprecationWarning, match="max_rollouts"):
        agl.Trainer(n_workers=1, max_tasks=3).fit_v0(InLoop(), loader)
    assert [report.rollout_id for report in loader.rollouts] == ["local_task_001", "local_task_002", "local_task_001"]
    assert {report.metadata["lightstream.error_type"] for report in loader.rollouts} == {"ValueError"}, "no mode"
    tasks = [agl.Task(rollout_id="r", input="x", mode="train", resources_id="local")]
    loader = agl.DevTaskLoader(tasks, {"main_llm": LLM})
    agl.Trainer(max_rollouts=1).fit_v0(InLoop(), loader)
    [report] = loader.rollouts
    assert (report.rollout_id, report.final_reward, report.triplets is not None) == ("r", 0.25, True)
    loader = agl.DevTaskLoader(["numbers"], {})
    agl.Trainer(max_rollouts=1).fit_v0(InLoop(), loader)
    assert "list" not in loader.rollouts[0].metadata["lightstream.error_type"]
    assert "[1, 2]" in loader.rollouts[0].metadata["lightstream.error_message"]
    with pytest.raises(NotFoundError, match="only local"):
        loader.get_resources_by_id("other")
    with pytest.raises(ValueError, match="no tasks"):
        agl.DevTaskLoader([], {})
    with pytest.raises(ValueError, match="all Task objects"):
        agl.DevTaskLoader(["x", *tasks], {})
    with pytest.raises(SettingsError, match="fit_v0 takes the URL"):
        agl.Trainer().fit_v0(InLoop(), ["x"])
    with pytest.raises(ValueError, match="not the URL"):
        agl.Trainer().fit(InLoop(), "localhost")


class PerThread(agl.DevTaskLoader):
    """Hands its tasks to one of two threads alone; what the other gets is up to ``otherwise``."""

    def __init__(self, otherwise: Callable[[], Any], *, in_callers: bool) -> None:
        super().__init__(["task"], {"main_llm": LLM})
        self._otherwise = otherwise
        self._in_callers = in_callers

    def poll_next_task(self) -> agl.Task | None:
        in_callers = threading.current_thread() is threading.main_thread()
        if in_callers == self._in_callers:
            return super().poll_next_task()
        self._otherwise()
        return None


class Rewarded(agl.LitAgent[str]):
    def validation_rollout(self, task: str, resources: agl.NamedResources, rollout: Any) -> float:
        return 1.0


def test_an_error_of_one_runner_ends_all() -> None:
    def fail() -> None:
        raise ServiceUnavailableError("the server is gone")

    with pytest.raises(ServiceUnavailableError, match="the server is gone"):
        agl.Trainer(n_runners=2).fit_v0(Rewarded(), PerThread(fail, in_callers=True))


def test_an_interrupt_does_not_wait_for_other_runners() -> None:
    asked, over, gave_up = threading.Event(), threading.Event(), threading.Event()

    class Interrupted(PerThread):
        def poll_next_task(self) -> agl.Task | None:
            if threading.current_thread() is threading.main_thread():
                assert asked.wait(WAIT_S)
                raise KeyboardInterrupt
            return super().poll_next_task()

    def hang() -> None:
        asked.set()
        if not over.wait(WAIT_S):
            gave_up.set()

    with pytest.raises(KeyboardInterrupt):
        agl.Trainer(n_runners=2).fit_v0(Rewarded(), Interrupted(hang, in_callers=True))
    assert not gave_up.is_set(), "the other Runner was waited for"
    over.set()
