"""Where algorithms and Runners run: threads, processes, strategies of one's own, and what ends them."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

import pytest

import lightstream.agl as agl
from lightstream.agl.execution.base import AlgorithmBundle, RunnerBundle
from lightstream.runtime.ports import free_port
from lightstream.schemas.errors import SettingsError, StoreError, TrainingError

LENGTHS: agl.NamedResources = {"prompt": agl.PromptTemplate(template="<{task}>", engine="f-string")}


@agl.prompt_rollout
def measured(task: str, prompt_template: agl.PromptTemplate) -> float:
    """Paid by the length of what it says; one task ends its process."""
    if task == "die":
        os._exit(3)
    agl.emit_object({"process": os.getpid()})
    return float(len(prompt_template.format(task=task)))


class Rewards(agl.FastAlgorithm):
    """Rolls the tasks out and reads what came of them."""

    def __init__(self) -> None:
        self.rewards: list[float | None] = []
        self.processes: set[Any] = set()

    async def run(self, train_dataset: Any = None, val_dataset: Any = None) -> None:
        store = self.get_store()
        await store.update_resources("v1", LENGTHS)
        enqueued = await store.enqueue_many_rollouts(
            [agl.EnqueueRolloutRequest(input=task, mode="train") for task in train_dataset]
        )
        ids = [rollout.rollout_id for rollout in enqueued]
        assert len(await store.wait_for_rollouts(rollout_ids=ids)) == len(ids)
        for rollout_id in ids:
            spans = list(await store.query_spans(rollout_id, "latest"))
            self.rewards.append(agl.find_final_reward(spans))
            [told] = [span for span in spans if span.name == "agentlightning.object"]
            self.processes.add(agl.get_object_value(told)["process"])


class InTurn(agl.ExecutionStrategy):
    """All in one loop."""

    def execute(self, algorithm: AlgorithmBundle, runner: RunnerBundle, store: agl.LightningStore) -> None:
        async def both() -> None:
            event = agl.ThreadingEvent()
            working = asyncio.create_task(runner(store, 0, event))
            await algorithm(store, event)
            event.set()
            await working

        asyncio.run(both())


def cs(**options: Any) -> dict[str, Any]:
    return {"type": "cs", "server_port": free_port(), **options}


@pytest.mark.parametrize(
    "strategy",
    [
        None,
        "shm",
        {"type": "shm", "n_runners": 2, "main_thread": "algorithm"},
        agl.SharedMemoryExecutionStrategy(),
        InTurn,
        InTurn(),
    ],
)
def test_threads_of_this_process(strategy: Any) -> None:
    algorithm = Rewards()
    trainer = agl.Trainer(algorithm=algorithm, strategy=strategy, store=agl.InMemoryLightningStore())
    trainer.fit(measured, ["a", "bb", "ccc"])
    assert (algorithm.rewards, algorithm.processes) == ([3.0, 4.0, 5.0], {os.getpid()})


def test_processes_on_the_store_of_a_server() -> None:
    """The given tracer is this process's; each child makes spans of its own attempts with it."""
    algorithm, store = Rewards(), agl.InMemoryLightningStore()
    trainer = agl.Trainer(algorithm=algorithm, strategy=cs(n_runners=2), store=store, tracer=agl.OtelTracer())
    assert trainer.n_runners == 2
    trainer.fit(measured, ["a", "bb", "ccc", "dddd"])
    assert algorithm.rewards == [3.0, 4.0, 5.0, 6.0]
    assert os.getpid() not in algorithm.processes
    workers = asyncio.run(store.query_workers())
    # A process that is up late has no work left.
    assert {"Worker-0", "Worker-1"} >= {worker.worker_id for worker in workers} != set()


def test_a_runner_in_the_callers_process_and_the_algorithm_elsewhere() -> None:
    store, algorithm = agl.InMemoryLightningStore(), Rewards()
    agl.Trainer(algorithm=algorithm, strategy=cs(main_process="runner"), store=store).fit(measured, ["a"])
    assert algorithm.rewards == [], "it ran on a copy"
    assert list(asyncio.run(store.query_rollouts())) == []


def test_algorithm_and_runners_started_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on two machines: the role and the server's place come from the environment."""
    port = free_port()
    monkeypatch.setenv("AGL_SERVER_PORT", str(port))
    monkeypatch.setenv("AGL_CURRENT_ROLE", "runner")
    runners = agl.Trainer(strategy="cs", max_rollouts=2, store=agl.InMemoryLightningStore())
    monkeypatch.setenv("AGL_CURRENT_ROLE", "algorithm")
    algorithm = Rewards()
    deciding = agl.Trainer(algorithm=algorithm, strategy="cs", store=agl.InMemoryLightningStore())
    running = threading.Thread(target=lambda: runners.fit(measured))
    running.start()
    deciding.fit(measured, ["a", "bb"])
    running.join()
    assert algorithm.rewards == [3.0, 4.0]


class Refusing(agl.Algorithm):
    """Raises, after it has work running."""

    def run(self, train_dataset: Any = None, val_dataset: Any = None) -> None:
        raise KeyError("no such data")


@pytest.mark.parametrize("strategy", [None, "shm", "cs"])
def test_what_the_algorithm_raises_ends_all(strategy: str | None) -> None:
    described = cs() if strategy == "cs" else strategy
    trainer = agl.Trainer(algorithm=Refusing(), strategy=described, store=agl.InMemoryLightningStore())
    with pytest.raises(KeyError, match="no such data"):
        trainer.fit(measured, ["x"])


def test_a_process_that_dies_ends_all_and_is_named() -> None:
    strategy = agl.ClientServerExecutionStrategy(server_port=free_port(), graceful_timeout=1)
    trainer = agl.Trainer(algorithm=Rewards(), strategy=strategy, store=agl.InMemoryLightningStore())
    with pytest.raises(TrainingError, match=r"'runner-0': 3"):
        trainer.fit(measured, ["die"])


def test_a_runner_that_fails_ends_all() -> None:
    class Broken(agl.LitAgentRunner[Any]):
        async def iter(self, *, event: Any = None) -> None:
            raise OSError("no disk")

    trainer = agl.Trainer(algorithm=Rewards(), runner=Broken(), store=agl.InMemoryLightningStore())
    with pytest.raises(OSError, match="no disk"):
        trainer.fit(measured, ["x"])


def test_a_runner_of_ones_own() -> None:
    class Counting(agl.Runner[Any]):
        """Ends rollouts without running anything."""

        def init(self, agent: Any, **kwargs: Any) -> None: ...

        def init_worker(self, worker_id: int, store: agl.LightningStore, **kwargs: Any) -> None:
            self.worker_id, self.store = worker_id, store

        def teardown_worker(self, worker_id: int, *args: Any, **kwargs: Any) -> None: ...

        def teardown(self, *args: Any, **kwargs: Any) -> None: ...

        async def iter(self, *, event: Any = None) -> None:
            while not event.is_set():
                rollout = await self.store.dequeue_rollout(f"own-{self.worker_id}", timeout_s=0.2)
                if rollout is not None:
                    await self.store.update_attempt(rollout.rollout_id, rollout.attempt.attempt_id, "succeeded")

    for runner in (Counting, Counting(), lambda: Counting()):
        trainer = agl.Trainer(runner=runner, n_runners=2)
        trainer.dev(measured, ["a", "b", "c"])
        assert trainer.store is not None
        rollouts = asyncio.run(trainer.store.query_rollouts())
        assert [rollout.status for rollout in rollouts] == ["succeeded"] * 3


def test_what_strategies_refuse() -> None:
    with pytest.raises(ValueError, match="main_thread='algorithm'"):
        agl.Trainer(strategy="shm", n_runners=2)
    with pytest.raises(ValueError, match="role is 'boss'"):
        agl.ClientServerExecutionStrategy(role="boss")  # type: ignore[arg-type]  # what is refused
    with pytest.raises(ValueError, match="one Runner"):
        agl.ClientServerExecutionStrategy(main_process="runner", n_runners=2)
    trainer = agl.Trainer(algorithm=Rewards(), strategy=cs(managed_store=False), store=agl.InMemoryLightningStore())
    with pytest.raises(SettingsError, match="several processes"):
        trainer.fit(measured, ["x"])
    with pytest.raises(SettingsError, match="several threads"):
        agl.Trainer(algorithm=Rewards(), store=agl.LightningStore()).fit(measured, ["x"])
    with pytest.raises(StoreError, match="thread-safe"):
        agl.LightningStoreThreaded(agl.LightningStore())


def test_events_of_threads_and_processes() -> None:
    for event in (agl.ThreadingEvent(), agl.MultiprocessingEvent()):
        assert not event.is_set()
        event.set()
        assert event.wait(300)
        event.clear()
        assert not event.is_set()
