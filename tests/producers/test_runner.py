"""The Runner against agents that behave and agents that do not. Spans go through a real Kafka."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace

from lightstream.producers import Hook, LitAgent, OtelTracer, Runner, emit_reward, rollout
from lightstream.producers.runner import Outcome
from lightstream.schemas.errors import LightstreamError, ServiceUnavailableError
from lightstream.schemas.records import SpanRecord, WorkerStatus
from lightstream.schemas.settings import Settings
from lightstream.schemas.types import (
    LLM,
    Attempt,
    AttemptedRollout,
    EnqueueRolloutRequest,
    NamedResources,
    PromptTemplate,
    ProxyLLM,
    Rollout,
    RolloutConfig,
)
from tests.producers.support import ListStore
from tests.support.waiting import eventually

SpansInLog = Callable[[], list[SpanRecord]]


def run(
    store: ListStore,
    agent: LitAgent[Any],
    settings: Settings,
    tracer: OtelTracer,
    tasks: list[Any],
    n_concurrent: int = 4,
    config: RolloutConfig | None = None,
    **options: Any,
) -> int:
    async def main() -> int:
        requests = [
            EnqueueRolloutRequest(input=task, rollout_id=f"r{i}", config=config or RolloutConfig())
            for i, task in enumerate(tasks)
        ]
        await store.enqueue_many_rollouts(requests)
        runner = Runner(
            store,
            agent,
            settings=settings,
            tracer=tracer,
            n_concurrent=n_concurrent,
            timeout_report_delay_s=0.0,
            **options,
        )
        return await runner.run(max_rollouts=len(tasks))

    return asyncio.run(main())


def rewards(spans: list[SpanRecord]) -> dict[str | None, float]:
    key = "agentlightning.reward.0.value"
    return {span.rollout_id: span.attributes[key] for span in spans if key in span.attributes}


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
            together.wait(60)
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
                await asyncio.gather(
                    asyncio.create_task(_child(library, task)), asyncio.to_thread(_leaf, library, task)
                )
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


def _leaf(library: trace.Tracer, task: int) -> None:
    with library.start_as_current_span(f"leaf-{task}"):
        pass


class Misbehaves(LitAgent[str]):
    """Fails as its task says, synchronously."""

    def rollout(self, task: str, resources: NamedResources, rollout: Rollout) -> Any:
        with trace.get_tracer("agent").start_as_current_span("before"):
            pass
        if task == "raises":
            raise KeyError("no such tool")
        if task == "exits":
            sys.exit(3)
        if task == "interrupts":
            raise KeyboardInterrupt
        if task == "cancelled":
            raise asyncio.CancelledError("inner task cancelled")
        return {"text": "not a number", "list": [1.0], "nan": math.nan}.get(task, 1.0)


class MisbehavesAsync(Misbehaves):
    """As above, asynchronously."""

    async def rollout_async(self, task: str, resources: NamedResources, rollout: Rollout) -> Any:
        await asyncio.sleep(0)
        return self.rollout(task, resources, rollout)


@pytest.mark.parametrize("agent", [Misbehaves(), MisbehavesAsync()], ids=["sync", "async"])
def test_misbehaving_agents_fail_alone_with_their_error_kept(
    settings: Settings, tracer: OtelTracer, spans_in_log: SpansInLog, agent: LitAgent[Any]
) -> None:
    tasks = ["raises", "exits", "interrupts", "cancelled", "text", "list", "fine", "nan"]
    store = ListStore()
    assert run(store, agent, settings, tracer, tasks) == len(tasks)
    ended = {tasks[int(rollout_id[1:])]: end for rollout_id, end in store.ended.items()}
    errors = {task: error_type for task, (succeeded, error_type, _) in ended.items() if not succeeded}
    assert errors == {
        "raises": "KeyError",
        "exits": "SystemExit",
        "interrupts": "KeyboardInterrupt",
        "cancelled": "CancelledError",
        "text": "TypeError",
        "list": "TypeError",
    }
    assert "no such tool" in str(ended["raises"][2])
    assert "test_runner.py" in str(ended["raises"][2]), "the error says where it was raised"
    assert "not a number" in str(ended["text"][2])
    spans = spans_in_log()
    assert sorted(s.rollout_id or "" for s in spans if s.name == "before") == [f"r{i}" for i in range(len(tasks))]
    found = rewards(spans)
    assert found.pop("r6") == 1.0
    assert math.isnan(found.pop("r7")), "a NaN reward travels; the assembler reports it"
    assert not found


@pytest.mark.parametrize("is_async", [False, True])
def test_agent_beyond_its_deadline_is_given_up(
    settings: Settings, tracer: OtelTracer, spans_in_log: SpansInLog, is_async: bool
) -> None:
    """The attempt beside it is not harmed, and what the hanging one did before is kept."""
    released = threading.Event()
    cleaned_up: list[str] = []

    @rollout
    def hangs(task: str) -> float:
        _leaf(trace.get_tracer("agent"), 0)
        if task == "hang":
            released.wait(60)
        return 1.0

    @rollout
    async def hangs_async(task: str) -> float:
        _leaf(trace.get_tracer("agent"), 0)
        try:
            if task == "hang":
                await asyncio.Event().wait()
        finally:
            cleaned_up.append(task)
        return 1.0

    store = ListStore()
    agent = hangs_async if is_async else hangs
    run(store, agent, settings, tracer, ["hang", "work"], config=RolloutConfig(timeout_seconds=0.5))
    released.set()
    assert store.ended["r0"] == (False, "TimeoutError", "the agent did not return within 0.5 s")
    assert store.ended["r1"] == (True, None, None)
    assert {s.rollout_id for s in spans_in_log() if s.name == "leaf-0"} == {"r0", "r1"}
    assert rewards(spans_in_log()) == {"r1": 1.0}
    assert sorted(cleaned_up) == (["hang", "work"] if is_async else [])


def test_agent_that_swallows_its_cancellation_does_not_hold_the_runner(
    settings: Settings, tracer: OtelTracer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lightstream.producers.runner.call.CANCEL_GRACE_S", 0.1)

    @rollout
    async def stubborn(task: str) -> None:
        finished = asyncio.Event()
        while task == "stay":
            try:
                await asyncio.wait_for(finished.wait(), 2)
                return
            except asyncio.CancelledError:
                continue
            except TimeoutError:
                return

    store = ListStore()
    run(store, stubborn, settings, tracer, ["stay", "go"], config=RolloutConfig(timeout_seconds=0.2))
    assert store.ended["r0"][1] == "TimeoutError"
    assert store.ended["r1"][0]


def test_resources_reach_the_agent_by_name_and_type(settings: Settings, tracer: OtelTracer) -> None:
    seen: dict[str, Any] = {}

    @rollout
    def agent(
        task: str, llm: LLM, prompt_template: PromptTemplate, resources: NamedResources, rollout: Rollout
    ) -> None:
        seen.update(llm=llm, text=prompt_template.format(name="Ada"), names=sorted(resources), id=rollout.rollout_id)

    store = ListStore()
    main_llm = ProxyLLM(endpoint="http://proxy:1/v1", model="policy@3", sampling_parameters={"temperature": 0.5})
    greeting = PromptTemplate(template="Hello {name}")
    asyncio.run(store.update_resources("v3", {"main_llm": main_llm, "greeting": greeting}))
    run(store, agent, settings, tracer, ["x"])
    assert store.ended["r0"] == (True, None, None)
    assert seen["llm"] == LLM(
        endpoint="http://proxy:1/rollout/r0/attempt/r0-a1/v1",
        model="policy@3",
        sampling_parameters={"temperature": 0.5},
    )
    assert (seen["text"], seen["names"], seen["id"]) == ("Hello Ada", ["greeting", "main_llm"], "r0")


def test_missing_resources_fail_the_attempt(settings: Settings, tracer: OtelTracer) -> None:
    @rollout
    def needs_llm(task: str, llm: LLM) -> float:
        return 1.0

    store = ListStore()
    asyncio.run(
        store.enqueue_many_rollouts([EnqueueRolloutRequest(input="x", resources_id="gone", rollout_id="pinned")])
    )
    run(store, needs_llm, settings, tracer, ["x"], n_concurrent=1)
    asyncio.run(Runner(store, needs_llm, settings=settings, tracer=tracer).run(max_rollouts=1))
    assert store.ended["pinned"][1] == "NotFoundError"
    assert store.ended["r0"][1] == "ValueError"
    assert "needs a resource of type LLM" in str(store.ended["r0"][2])


def test_mode_chooses_the_method(settings: Settings, tracer: OtelTracer) -> None:
    called: list[str] = []

    class Agent(LitAgent[str]):
        def training_rollout(self, task: str, resources: NamedResources, rollout: Rollout) -> None:
            called.append(f"train {task}")

        def validation_rollout(self, task: str, resources: NamedResources, rollout: Rollout) -> None:
            called.append(f"validate {task}")

    store = ListStore()
    requests = [EnqueueRolloutRequest(input="a", mode="train"), EnqueueRolloutRequest(input="b", mode="val")]
    asyncio.run(store.enqueue_many_rollouts(requests))
    asyncio.run(Runner(store, Agent(), settings=settings, tracer=tracer).run(max_rollouts=2))
    assert called == ["train a", "validate b"]


def test_hooks_see_the_attempt_and_may_fail_it(
    settings: Settings, tracer: OtelTracer, spans_in_log: SpansInLog
) -> None:
    calls: list[str] = []

    class Counts(Hook):
        async def on_rollout_start(self, *, agent: Any, runner: Runner, rollout: AttemptedRollout) -> None:
            calls.append("start")
            if rollout.input == "refuse":
                raise LightstreamError("not this one")

        async def on_trace_start(self, *, agent: Any, runner: Runner, tracer: Any, rollout: AttemptedRollout) -> None:
            calls.append("trace")
            assert [r.rollout_id for r in runner.running] == [rollout.rollout_id]

        async def on_trace_end(
            self, *, agent: Any, runner: Runner, tracer: Any, rollout: AttemptedRollout, outcome: Outcome
        ) -> None:
            emit_reward(0.5 if outcome.succeeded else -1.0)

        async def on_rollout_end(
            self, *, agent: Any, runner: Runner, rollout: AttemptedRollout, outcome: Outcome
        ) -> None:
            calls.append(f"end {outcome.error_type}")

    @rollout
    def agent(task: str) -> None:
        calls.append("agent")

    store = ListStore()
    run(store, agent, settings, tracer, ["fine", "refuse"], n_concurrent=1, hooks=[Counts()])
    assert calls == ["start", "trace", "agent", "end None", "start", "end LightstreamError"]
    assert rewards(spans_in_log()) == {"r0": 0.5}
    assert store.ended["r1"][1] == "LightstreamError"


def test_end_is_reported_again_until_it_is_accepted(
    settings: Settings, tracer: OtelTracer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lightstream.producers.runner.attempt.REPORT_BACKOFF_S", 0.01)

    class Flaky(ListStore):
        tries = 0

        async def dequeue_rollout(
            self, worker_id: str | None = None, *, timeout_s: float = 0.0
        ) -> AttemptedRollout | None:
            self.tries += 1
            if self.tries == 1:
                raise ServiceUnavailableError("the life cycle restarts.")
            return await super().dequeue_rollout(worker_id, timeout_s=timeout_s)

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


def test_stop_lets_running_attempts_finish_and_says_so(settings: Settings, tracer: OtelTracer) -> None:
    store, started, go_on = ListStore(), threading.Event(), threading.Event()

    @rollout
    def agent(task: str) -> None:
        started.set()
        go_on.wait(60)

    asyncio.run(store.enqueue_many_rollouts([EnqueueRolloutRequest(input="x", rollout_id=f"r{i}") for i in range(2)]))
    runner = Runner(store, agent, settings=settings, tracer=tracer, worker_id="w")
    thread = threading.Thread(target=lambda: asyncio.run(runner.run()))
    thread.start()
    assert started.wait(60)
    runner.stop()
    go_on.set()
    thread.join(60)
    assert not thread.is_alive()
    assert store.ended == {"r0": (True, None, None)}
    assert [rollout.rollout_id for rollout in store.waiting] == ["r1"], "a stopping Runner takes no more"
    first, last = store.heartbeats[0][0], store.heartbeats[-1][0]
    assert (first.worker_id, first.kind, first.pid) == ("w", "runner", os.getpid())
    assert last.status is WorkerStatus.STOPPED


def test_attempt_that_does_not_finish_in_the_drain_is_reported_as_failed(
    settings: Settings, tracer: OtelTracer
) -> None:
    store, started = ListStore(), threading.Event()

    @rollout
    async def agent(task: str) -> None:
        started.set()
        await asyncio.Event().wait()

    asyncio.run(store.enqueue_many_rollouts([EnqueueRolloutRequest(input="x", rollout_id="r0")]))
    runner = Runner(store, agent, settings=settings, tracer=tracer, drain_timeout_s=0.05)
    thread = threading.Thread(target=lambda: asyncio.run(runner.run()))
    thread.start()
    assert started.wait(60)
    runner.stop()
    thread.join(60)
    assert store.ended["r0"][:2] == (False, "CancelledError")


def test_busy_attempts_send_heartbeats(settings: Settings, tracer: OtelTracer) -> None:
    store = ListStore()

    @rollout
    def agent(task: str) -> None:
        eventually(lambda: sum(bool(attempts) for _, attempts in store.heartbeats) >= 2)

    quick = settings.model_copy(update={"rollout_unresponsive_s": 0.1})
    run(store, agent, quick, tracer, ["x"])
    assert store.ended == {"r0": (True, None, None)}
    busy = [(worker, attempts) for worker, attempts in store.heartbeats if attempts]
    assert busy[0][0].status is WorkerStatus.BUSY
    assert busy[0][1] == [("r0", "r0-a1")]


PROGRAM = """
import asyncio, sys, threading
from lightstream.producers import Runner, rollout
from lightstream.schemas.types import EnqueueRolloutRequest
from support import ListStore

@rollout
def agent(task):
    print("started", flush=True)
    threading.Event().wait(1 if task == "short" else None)
    return 1.0

store = ListStore()
asyncio.run(store.enqueue_many_rollouts([EnqueueRolloutRequest(input=sys.argv[1], rollout_id="r0")]))
print(Runner(store, agent, drain_timeout_s=float(sys.argv[2])).run_forever(), store.ended["r0"][:2])
"""


@pytest.mark.parametrize(
    ("task", "drain_s", "output"),
    [("short", "30", "1 (True, None)"), ("hangs for ever", "0.1", "1 (False, 'CancelledError')")],
)
def test_sigterm_ends_a_runner_process_in_order(
    settings: Settings, spans_in_log: SpansInLog, task: str, drain_s: str, output: str
) -> None:
    """A thread that never returns does not keep the process alive either."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, task, drain_s],
        env=os.environ | settings.to_environment() | {"PYTHONPATH": str(Path(__file__).parent)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
    assert (process.returncode, out.strip()) == (0, output)
    assert rewards(spans_in_log()) == ({"r0": 1.0} if task == "short" else {})
