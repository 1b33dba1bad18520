"""Programs as they are written for Agent Lightning, in one process and in memory."""

from __future__ import annotations

import asyncio
import math
import threading
from pathlib import Path
from typing import Any

import pytest

import lightstream.agl as agl
from lightstream.runtime.clock import ManualClock
from lightstream.schemas.errors import SettingsError
from tests.store_views.stores_http.support import local_settings, served

GREETING: agl.NamedResources = {"greeting": agl.PromptTemplate(template="Hello {name}", engine="f-string")}


@agl.rollout
def greeter(task: str, prompt_template: agl.PromptTemplate) -> float:
    """Says its greeting, and is paid by its length."""
    said = prompt_template.format(name=task)
    agl.emit_object({"said": said})
    return float(len(said))


@agl.rollout
async def unlucky(task: str) -> float:
    """Always fails."""
    raise KeyError(task)


class Watcher(agl.Hook):
    """Hooks with the arguments that Agent Lightning gives."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []

    async def on_trace_end(self, *, agent: Any, runner: Any, tracer: Any, rollout: Any) -> None:  # type: ignore[override]  # fewer arguments are allowed
        self.seen.append(("trace", len(tracer.get_last_trace())))

    async def on_rollout_end(self, *, agent: Any, runner: Any, rollout: Any, spans: Any) -> None:  # type: ignore[override]  # others are allowed
        assert runner is agent.runner or runner.get_worker_id() != agent.runner.get_worker_id()
        self.seen.append(("rollout", len(spans)))


class OwnTracer(agl.OtelTracer):
    """A user's own class."""


def test_a_dry_run_needs_no_service() -> None:
    store, hook = agl.InMemoryLightningStore(), Watcher()
    trainer = agl.Trainer(initial_resources=GREETING, n_runners=2, hooks=hook, store=store)
    trainer.dev(greeter, ["Ada", "Grace"], val_dataset=["Alan"])
    rollouts = asyncio.run(store.query_rollouts())
    assert [(rollout.mode, rollout.status) for rollout in rollouts] == [
        ("train", "succeeded"),
        ("train", "succeeded"),
        ("val", "succeeded"),
    ]
    spans = [asyncio.run(store.query_spans(rollout.rollout_id)) for rollout in rollouts]
    assert [agl.find_final_reward(list(found)) for found in spans] == [9.0, 11.0, 10.0]
    assert sorted(hook.seen) == [("rollout", 2)] * 3 + [("trace", 2)] * 3


def test_the_baseline_asks_for_no_more_than_its_queue_may_hold() -> None:
    store = agl.InMemoryLightningStore()
    waiting: list[int] = []

    @agl.rollout
    async def looks_at_the_queue(task: int) -> float:
        waiting.append(len(await store.query_rollouts(status_in=["queuing"])))
        return 1.0

    algorithm = agl.Baseline(max_queue_length=1, polling_interval=60.0)
    agl.Trainer(algorithm=algorithm, n_runners=1, store=store).dev(looks_at_the_queue, list(range(6)))
    assert len(waiting) == 6
    assert max(waiting) <= 2, "one that was enqueued beside the one that may wait"


def test_the_baseline_names_what_it_cannot_run_with() -> None:
    with pytest.raises(ValueError, match=r"^train_split must be between 0 and 1, not 1\.$"):
        agl.Baseline(train_split=1.0)
    with pytest.raises(ValueError, match=r"^polling_interval must be more than 0 seconds, not 0\.$"):
        agl.Baseline(polling_interval=0.0)
    with pytest.raises(ValueError, match=r"^max_queue_length must be at least 0, not -1\.$"):
        agl.Baseline(max_queue_length=-1)


def test_an_algorithm_on_a_store_gets_what_it_names() -> None:
    given: dict[str, Any] = {}

    @agl.algo
    async def longest(
        *, store: agl.LightningStore, train_dataset: list[str], initial_resources: Any, adapter: Any
    ) -> None:
        resources = await store.add_resources(initial_resources)
        enqueued = [
            await store.enqueue_rollout(task, mode="train", resources_id=resources.resources_id)
            for task in train_dataset
        ]
        ended = await store.wait_for_rollouts(rollout_ids=[rollout.rollout_id for rollout in enqueued])
        spans = [list(await store.query_spans(rollout.rollout_id)) for rollout in ended]
        given.update(rewards=[agl.find_final_reward(found) for found in spans], adapter=adapter)

    adapter, store = agl.TraceToMessages(), agl.InMemoryLightningStore()
    agl.Trainer(algorithm=longest, initial_resources=GREETING, adapter=adapter, store=store).fit(greeter, ["a", "bc"])
    assert given == {"rewards": [7.0, 8.0], "adapter": adapter}


def test_an_algorithm_of_ones_own_class() -> None:
    class Counting(agl.Algorithm):
        def run(self, train_dataset: Any = None, val_dataset: Any = None) -> None:
            store = self.get_store()
            rollout = asyncio.run(store.enqueue_rollout(train_dataset[0]))
            [ended] = asyncio.run(store.wait_for_rollouts(rollout_ids=[rollout.rollout_id]))
            assert isinstance(self.get_adapter(), agl.TracerTraceToTriplet)
            assert self.get_llm_proxy() is None
            self.outcome = ended.status

    algorithm = Counting()
    agl.Trainer(algorithm=algorithm, store=agl.InMemoryLightningStore()).fit(unlucky, ["x"])
    assert algorithm.outcome == "failed"


def test_a_trainer_says_what_it_cannot_do() -> None:
    with pytest.raises(SettingsError, match=r"agl\.execution\.Quick"):
        agl.Trainer(strategy="agentlightning.execution.Quick")
    with pytest.raises(SettingsError, match="trainer_id"):
        agl.Trainer(trainer_id="x")
    with pytest.raises(SettingsError, match=r"Trainer\.dev"):
        agl.Trainer(dev=True)
    with pytest.raises(TypeError, match="adapter"):
        agl.Trainer(adapter=lambda: "none")  # type: ignore[arg-type,return-value]  # what is refused
    with pytest.raises(SettingsError, match="max_rollouts"):
        agl.Trainer(algorithm=agl.VERL(model="anything", steps=1), max_rollouts=3)
    verl = agl.VERL(model="anything", steps=1)
    agl.Trainer(algorithm=verl, hooks=Watcher(), initial_resources=GREETING, trainer_id="named")
    for tracer in (OwnTracer, OwnTracer(), lambda: OwnTracer(), f"{__name__}.OwnTracer", agl.OtelTracer()):
        agl.Trainer(algorithm=verl, tracer=tracer, adapter=agl.LlmProxyTraceToTriplet(), trainer_id="named")

    @agl.algo
    def of_a_store(store: Any) -> None:
        """Does nothing."""

    with pytest.raises(TypeError, match="FastAlgorithm"):
        agl.Trainer(algorithm=of_a_store).dev(greeter, ["x"])
    with pytest.raises(TypeError, match="train_dataset"):
        agl.Trainer(algorithm=of_a_store, store=agl.InMemoryLightningStore()).fit(greeter, ["x"])
    with pytest.raises(TypeError, match="weather"):
        agl.algo(lambda store, weather: None)


async def test_a_runner_steps_through_one_task() -> None:
    store = agl.InMemoryLightningStore()
    runner = agl.LitAgentRunner[str](agl.OtelTracer())
    with runner.run_context(agent=greeter, store=store):
        rollout = await runner.step("Ada", resources=GREETING, mode="val")
    spans = await store.query_spans(rollout.rollout_id)
    assert (rollout.status, rollout.mode, [span.name for span in spans]) == (
        "succeeded",
        "val",
        ["agentlightning.object", "agentlightning.annotation"],
    )
    with runner.run_context(agent=unlucky, store=store), pytest.raises(KeyError, match="Ada"):
        await runner.step("Ada")
    assert [r.status for r in await store.query_rollouts(sort_by="start_time")] == ["succeeded", "failed"]
    with pytest.raises(SettingsError, match="no store"):
        await runner.step("Ada")


async def test_a_runner_works_until_it_is_told_to_stop() -> None:
    store, enough = agl.InMemoryLightningStore(), threading.Event()
    await store.add_resources(GREETING)
    enqueued = [await store.enqueue_rollout(name) for name in ("Ada", "Grace")]
    runner = agl.LitAgentRunner[str]()
    with runner.run_context(agent=greeter, store=store):
        working = asyncio.create_task(runner.iter(event=enough))
        ended = await store.wait_for_rollouts(rollout_ids=[rollout.rollout_id for rollout in enqueued])
        enough.set()
        await working
    assert [rollout.status for rollout in ended] == ["succeeded", "succeeded"]


async def test_an_agent_may_return_spans_that_were_made_elsewhere() -> None:
    @agl.rollout
    def elsewhere(task: str) -> Any:
        if task == "numbers":
            return [1, 2]
        return [
            agl.SpanCoreFields(
                name=task, attributes={}, start_time=1.0, end_time=2.0, status=agl.TraceStatus(status_code="OK")
            )
        ]

    store, runner = agl.InMemoryLightningStore(), agl.LitAgentRunner[str]()
    with runner.run_context(agent=elsewhere, store=store):
        rollout = await runner.step("there")
        assert [span.name for span in await store.query_spans(rollout.rollout_id)] == ["there"]
        with pytest.raises(TypeError, match="list of int"):
            await runner.step("numbers")


def test_old_paths_are_there() -> None:
    from lightstream.agl.algorithm import Baseline
    from lightstream.agl.runner import LitAgentRunner

    assert (Baseline, LitAgentRunner) == (agl.Baseline, agl.LitAgentRunner)


def test_a_rollouts_status_in_three_words() -> None:
    from lightstream.agl.store import is_finished, is_queuing, is_running

    async def told() -> list[tuple[bool, bool, bool]]:
        store = agl.InMemoryLightningStore()
        seen = [await store.enqueue_rollout(1), await store.start_rollout(2)]
        seen.append(await store.update_rollout(seen[1].rollout_id, status="cancelled"))
        return [(is_queuing(rollout), is_running(rollout), is_finished(rollout)) for rollout in seen]

    assert asyncio.run(told()) == [(True, False, False), (False, True, False), (False, False, True)]


@pytest.mark.parametrize("over_http", [False, True])
def test_a_configuration_without_limits_has_none(tmp_path: Path, over_http: bool) -> None:
    clock = ManualClock()
    store = agl.InMemoryLightningStore(clock=clock)

    async def outcomes(used: agl.LightningStore) -> list[str]:
        configs = [agl.RolloutConfig(), agl.RolloutConfig(timeout_seconds=None, unresponsive_seconds=30), None]
        made = [await used.start_rollout(number, config=config) for number, config in enumerate(configs)]
        assert [attempted.config.timeout_seconds for attempted in made] == [math.inf, math.inf, None]
        clock.advance(365 * 24 * 3600.0)
        found = [await used.get_rollout_by_id(attempted.rollout_id) for attempted in made]
        return [rollout.status for rollout in found if rollout is not None]

    expected = ["preparing", "failed", "failed"]
    if not over_http:
        assert asyncio.run(outcomes(store)) == expected
        return
    with served(store, local_settings(tmp_path)) as server:
        assert asyncio.run(outcomes(agl.LightningStoreClient(server.endpoint))) == expected
