"""What agents return and emit is in the log, each attempt's own, before its end is reported."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from opentelemetry import trace

from lightstream.producers import OtelTracer, Runner, emit_reward, rollout
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import ServiceUnavailableError
from lightstream.schemas.records import SpanRecord, WorkerStatus
from lightstream.schemas.types import Attempt, AttemptedRollout, EnqueueRolloutRequest, RolloutConfig
from tests.producers.runner.running import SpansInLog, leaf, rewards, run
from tests.producers.support import ListStore
from tests.support.waiting import eventually


def test_returned_reward_is_in_the_log_before_the_end_is_reported(
    settings: Settings, tracer: OtelTracer, spans_in_log: SpansInLog
) -> None:
    seen: list[SpanRecord] = []

    class ReadsLogAtEnd(ListStore):
        async def update_attempt(self, *args: Any, **kwargs: Any) -> Attempt:
            seen.extend(spans_in_log())
            return await super().update_attempt(*args, **kwargs)

    @rollout
    def agent(task: float) -> float:
        return task

    store = ReadsLogAtEnd()
    assert run(store, agent, settings, tracer, [0.25]) == 1
    assert store.ended == {"r0": (True, None, None)}
    (span,) = seen
    assert (span.name, span.rollout_id, span.attempt_id) == ("agentlightning.annotation", "r0", "r0-a1")
    assert span.attributes == {"agentlightning.reward.0.name": "primary", "agentlightning.reward.0.value": 0.25}


@pytest.mark.parametrize("is_async", [False, True])
def test_concurrent_attempts_keep_their_spans_apart(
    settings: Settings, tracer: OtelTracer, spans_in_log: SpansInLog, is_async: bool
) -> None:
    """All attempts are inside their second span at once, so nothing but the context tells them apart."""
    n = 8
    library = trace.get_tracer("some-library")
    together = threading.Barrier(n)
    arrived = asyncio.Event()
    count = 0

    @rollout
    def sync_agent(task: int) -> float:
        with library.start_as_current_span(f"outer-{task}"), library.start_as_current_span(f"inner-{task}"):
            together.wait(300)
            emit_reward(float(task))
        return float(task)

    @rollout
    async def async_agent(task: int) -> float:
        nonlocal count
        with library.start_as_current_span(f"outer-{task}"):
            count += 1
            if count == n:
                arrived.set()
            await arrived.wait()
            with library.start_as_current_span(f"inner-{task}"):
                await asyncio.gather(asyncio.create_task(_child(library, task)), asyncio.to_thread(leaf, library, task))
            emit_reward(float(task))
        return float(task)

    store = ListStore()
    assert run(store, async_agent if is_async else sync_agent, settings, tracer, list(range(n)), n) == n
    assert all(succeeded for succeeded, _, _ in store.ended.values())
    spans = spans_in_log()
    assert len(spans) == n * (6 if is_async else 4)
    for span in spans:
        assert span.attempt_id == f"{span.rollout_id}-a1"
        task = span.attributes.get("agentlightning.reward.0.value", span.name.rpartition("-")[2])
        assert f"r{int(float(task))}" == span.rollout_id
        assert not any(name.startswith("lightstream.") for name in span.attributes)
    assert rewards(spans) == {f"r{i}": float(i) for i in range(n)}


async def _child(library: trace.Tracer, task: int) -> None:
    with library.start_as_current_span(f"child-{task}"):
        await asyncio.sleep(0)


def test_end_is_reported_again_until_it_is_accepted(
    settings: Settings, tracer: OtelTracer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lightstream.producers.runner.attempt.REPORT_PAUSES_S", (0.01,) * 5)

    class Flaky(ListStore):
        tries = 0

        async def dequeue_rollout(
            self, worker_id: str | None = None, *, timeout_s: float = 0.0, run_id: str = "*"
        ) -> AttemptedRollout | None:
            self.tries += 1
            if self.tries == 1:
                raise ServiceUnavailableError("the life cycle restarts.")
            return await super().dequeue_rollout(worker_id, timeout_s=timeout_s, run_id=run_id)

        async def update_attempt(self, *args: Any, **kwargs: Any) -> Attempt:
            self.tries += 1
            if self.tries < 5:
                raise ServiceUnavailableError("the life cycle restarts.")
            return await super().update_attempt(*args, **kwargs)

    @rollout
    def agent(task: str) -> None:
        return None

    store = Flaky()
    run(store, agent, settings, tracer, ["x"])
    assert store.ended == {"r0": (True, None, None)}


def test_an_end_that_is_never_accepted_is_tried_once_more_than_there_are_pauses(
    settings: Settings, tracer: OtelTracer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lightstream.producers.runner.attempt.REPORT_PAUSES_S", (0.01, 0.01))
    tries: list[str] = []

    class Away(ListStore):
        async def update_attempt(self, rollout_id: str, *args: Any, **kwargs: Any) -> Attempt:
            tries.append(rollout_id)
            raise ServiceUnavailableError("the life cycle restarts.")

    @rollout
    def agent(task: str) -> None:
        return None

    run(Away(), agent, settings, tracer, ["x"])
    assert tries == ["r0"] * 3


@pytest.mark.parametrize("limited_by", ["settings", "rollout"])
def test_busy_attempts_send_heartbeats_as_often_as_they_need(
    settings: Settings, tracer: OtelTracer, limited_by: str
) -> None:
    """Also those of a rollout that allows for less silence than the Runner had in mind while it was idle."""
    store = ListStore()

    @rollout
    def agent(task: str) -> None:
        eventually(lambda: sum(bool(attempts) for _, attempts in store.heartbeats) >= 3)

    limits = settings.model_copy(update={"rollout_unresponsive_s": 0.1 if limited_by == "settings" else 60.0})
    config = RolloutConfig(unresponsive_seconds=0.1 if limited_by == "rollout" else None)
    run(store, agent, limits, tracer, ["x"], config=config)
    assert store.ended == {"r0": (True, None, None)}
    busy = [(worker, attempts) for worker, attempts in store.heartbeats if attempts]
    assert busy[0][0].status is WorkerStatus.BUSY
    assert busy[0][1] == [("r0", "r0-a1")]


def test_a_runner_that_runs_again_sends_heartbeats_again(settings: Settings, tracer: OtelTracer) -> None:
    store = ListStore()
    counts: list[int] = []

    @rollout
    def agent(task: str) -> None:
        before = len(store.heartbeats)
        eventually(lambda: len(store.heartbeats) >= before + 3)
        counts.append(len(store.heartbeats))

    limits = settings.model_copy(update={"rollout_unresponsive_s": 0.1})
    runner = Runner(store, agent, settings=limits, tracer=tracer)
    for name in ("r0", "r1"):
        asyncio.run(store.enqueue_many_rollouts([EnqueueRolloutRequest(input="x", rollout_id=name)]))
        assert asyncio.run(runner.run(max_rollouts=1)) == 1
    assert len(counts) == 2
