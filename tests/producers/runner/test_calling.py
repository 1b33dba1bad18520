"""What an agent is called with, and what hooks see of it."""

from __future__ import annotations

import asyncio
from typing import Any

from lightstream.producers import Hook, LitAgent, OtelTracer, Runner, emit_reward, rollout
from lightstream.producers.runner import Outcome
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import LightstreamError
from lightstream.schemas.types import (
    LLM,
    AttemptedRollout,
    EnqueueRolloutRequest,
    NamedResources,
    PromptTemplate,
    ProxyLLM,
    Rollout,
)
from tests.producers.runner.running import SpansInLog, rewards, run
from tests.producers.support import ListStore


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


def test_validation_rollouts_are_given_sampling_parameters_of_their_own(settings: Settings, tracer: OtelTracer) -> None:
    seen: list[tuple[str | None, dict[str, Any]]] = []

    @rollout
    def agent(task: str, llm: LLM, rollout: Rollout) -> None:
        seen.append((rollout.mode, llm.sampling_parameters))

    store = ListStore()
    main_llm = ProxyLLM(
        endpoint="http://proxy:1/v1",
        model="policy@3",
        sampling_parameters={"temperature": 1.0},
        validation_sampling_parameters={"temperature": 0.0},
    )
    asyncio.run(store.update_resources("v3", {"main_llm": main_llm}))
    modes: list[Any] = ["train", "val"]
    asyncio.run(store.enqueue_many_rollouts([EnqueueRolloutRequest(input="x", mode=mode) for mode in modes]))
    asyncio.run(Runner(store, agent, settings=settings, tracer=tracer, n_concurrent=1).run(max_rollouts=2))
    assert seen == [("train", {"temperature": 1.0}), ("val", {"temperature": 0.0})]


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
    requests = [
        EnqueueRolloutRequest(input="a", mode="train"),
        EnqueueRolloutRequest(input="b", mode="val"),
        EnqueueRolloutRequest(input="c"),
    ]
    asyncio.run(store.enqueue_many_rollouts(requests))
    asyncio.run(Runner(store, Agent(), settings=settings, tracer=tracer).run(max_rollouts=3))
    assert called == ["train a", "validate b", "validate c"]


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


def test_a_hook_is_never_given_the_spans_of_another_attempt(settings: Settings, tracer: OtelTracer) -> None:
    """Of one that was refused before anything of it was traced there are none."""
    seen: dict[str, set[str]] = {}

    class Collects(Hook):
        async def on_rollout_start(self, *, agent: Any, runner: Runner, rollout: AttemptedRollout) -> None:
            if rollout.input == "refuse":
                raise LightstreamError("not this one")

        async def on_rollout_end(
            self, *, agent: Any, runner: Runner, rollout: AttemptedRollout, outcome: Outcome, spans: Any = ()
        ) -> None:
            seen[rollout.rollout_id] = {span.rollout_id for span in spans}

    @rollout
    def agent(task: str) -> float:
        return 1.0

    run(ListStore(), agent, settings, tracer, ["fine", "refuse"], n_concurrent=1, hooks=[Collects()])
    assert seen == {"r0": {"r0"}, "r1": set()}
