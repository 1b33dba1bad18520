"""What becomes of an environment that misbehaves, and of Runners that have another one."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cloudpickle  # type: ignore[import-untyped]  # it has no types
import pytest

from lightstream.producers import LitAgent, Runner
from lightstream.producers.runner.primary import primary_key_of
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import TrainingError
from lightstream.schemas.types import EnqueueRolloutRequest, NamedResources, Rollout, RolloutConfig
from lightstream.trainers.environments import Environment, EnvironmentFailedError, Task, task_set
from tests.producers.support import ListStore

from .support import attempt_of

WAIT_S = 300.0
SUMS = task_set("sums", [{"input": f"{n} + {n}", "metadata": {"answer": 2 * n}} for n in range(4)])


def adds(task: str) -> int:
    return sum(map(int, task.split(" + ")))


async def is_right(task: Task, answer: Any) -> float:
    return float(answer == task.metadata["answer"])


def raises(_task: Task, _answer: Any) -> float:
    raise ValueError("the checker has a bug")


async def hangs(_task: Task, _answer: Any) -> float:
    await asyncio.Event().wait()
    return 1.0


def run(settings: Settings, environment: Environment, timeout_s: float | None = None) -> tuple[bool, str]:
    """How one attempt of the first task ends: whether it succeeded, and its error."""
    store = ListStore()

    async def main() -> None:
        request = EnqueueRolloutRequest(
            input=SUMS[0],
            rollout_id="r",
            metadata=dict(SUMS.metadata_of(0)),
            config=RolloutConfig(timeout_seconds=timeout_s),
        )
        await store.enqueue_many_rollouts([request])
        await Runner(store, environment, settings=settings, instrument=False).run(max_rollouts=1)

    asyncio.run(main())
    succeeded, kind, message = store.ended["r"]
    return succeeded, f"{kind or ''}: {message or ''}"


def test_the_verifier_judges_the_agents_answer(settings: Settings) -> None:
    assert run(settings, Environment(SUMS, adds, is_right)) == (True, ": ")


def test_a_runner_has_the_environment_without_its_tasks() -> None:
    environment = cloudpickle.loads(cloudpickle.dumps(Environment(SUMS, adds, is_right)))
    assert environment.digest == SUMS.digest
    with pytest.raises(EnvironmentFailedError, match="does not have the tasks"):
        _ = environment.train


@pytest.mark.parametrize(
    ("verifier", "reason"),
    [
        (raises, "the checker has a bug"),
        (lambda task, answer: None, "gave no reward"),
        (lambda task, answer: math.nan, "nan, which is no finite number"),
        (lambda task, answer: math.inf, "inf, which is no finite number"),
        (lambda task, answer: [0.0, 1.0, 1.0], "gave 3 rewards, one per turn"),
        (lambda task, answer: {}, "gave no reward"),
        (lambda task, answer: {"right": 1.0, "style": math.nan}, "the reward 'style' nan"),
        (lambda task, answer: "good", "'good', which is no finite number"),
    ],
    ids=["raises", "none", "nan", "infinity", "per turn", "no name", "a part", "prose"],
)
def test_a_verifier_without_a_verdict_fails_the_attempt_with_a_reason(
    settings: Settings, verifier: Callable[[Task, Any], Any], reason: str
) -> None:
    succeeded, error = run(settings, Environment(SUMS, adds, verifier))
    assert not succeeded
    assert reason in error


def test_a_verifier_that_hangs_ends_with_the_attempts_time(settings: Settings) -> None:
    succeeded, error = run(settings, Environment(SUMS, adds, hangs), timeout_s=0.2)
    assert not succeeded
    assert "0.2" in error


@pytest.mark.parametrize("part", ["verifier", "agent"])
def test_a_synchronous_part_that_blocks_leaves_the_runner_its_threads(settings: Settings, part: str) -> None:
    released = threading.Event()

    def blocks(*_: Any) -> float:
        released.wait()
        return 1.0

    environment = Environment(SUMS, adds, blocks) if part == "verifier" else Environment(SUMS, blocks_on(released))
    store = ListStore()

    async def main() -> None:
        # The pool has one worker: whoever holds it silences a Runner, which flushes spans in it.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        config = RolloutConfig(timeout_seconds=0.2)
        requests = [
            EnqueueRolloutRequest(input=SUMS[n], rollout_id=f"r{n}", metadata=dict(SUMS.metadata_of(n)), config=config)
            for n in range(3)
        ]
        await store.enqueue_many_rollouts(requests)
        running = asyncio.create_task(
            Runner(store, environment, settings=settings, instrument=False).run(max_rollouts=3)
        )
        ended, _ = await asyncio.wait({running}, timeout=WAIT_S)
        released.set()
        await running
        assert ended, "the Runner waited for a thread that was blocked"

    asyncio.run(main())
    assert {name: kind for name, (_, kind, _) in store.ended.items()} == dict.fromkeys(("r0", "r1", "r2"), "Timeout")


def blocks_on(released: threading.Event) -> Callable[[str], float]:
    def agent(task: str) -> float:
        released.wait()
        return 1.0

    return agent


class Knowing(LitAgent[Any]):
    """An agent that asks its Runner."""

    def rollout(self, task: Any, resources: NamedResources, rollout: Rollout) -> float:
        return float(self.runner is not None)


def test_an_agent_in_an_environment_has_its_runner_and_trains_what_it_says(settings: Settings) -> None:
    environment = Environment(SUMS, Knowing(trained_agents="writer"))
    assert environment.trained_agents == "writer"
    assert Environment(SUMS, Knowing(trained_agents="writer"), trained_agents="all").trained_agents == "all"
    assert run(settings, environment) == (True, ": ")


def test_a_runner_of_a_changed_set_says_so(settings: Settings) -> None:
    changed = task_set("sums", ["1 + 1"])
    succeeded, error = run(settings, Environment(changed, adds, is_right))
    assert not succeeded
    assert SUMS.digest[:12] in error
    assert changed.digest[:12] in error


def test_a_library_of_another_version_is_named(settings: Settings) -> None:
    environment = Environment(SUMS, adds, is_right, library="httpx")
    environment._version = "0.1"  # as if it had been made on another machine  # pyright: ignore[reportPrivateUsage]
    succeeded, error = run(settings, environment)
    assert not succeeded
    assert "made with httpx 0.1, and this Runner has" in error


def test_several_rewards_by_name_are_kept() -> None:
    async def both(_task: Task, _answer: Any) -> dict[str, float]:
        return {"right": 1, "short": 0.5}

    environment = Environment(SUMS, adds, both)
    rollout = attempt_of(SUMS, 0)
    assert asyncio.run(environment.rollout_async(rollout.input, {}, rollout)) == {"right": 1.0, "short": 0.5}


def test_splits_are_what_a_trainer_is_given() -> None:
    parted = SUMS.split_by(train=0.5, test=0.5)
    environment = Environment(parted, adds, is_right)
    assert (len(environment.train), len(environment.validation or ())) == (2, 2)
    assert Environment(SUMS, adds).validation is None


def test_held_out_tasks_are_never_trained_on() -> None:
    environment = Environment(SUMS.split_by(questions=0.5, test=0.5), adds, is_right)
    with pytest.raises(TrainingError, match="has no split 'train' to train on; it has questions, test"):
        _ = environment.train


@pytest.mark.parametrize(
    ("names", "key"),
    [(["right", "reward"], "reward"), (["reward", "primary"], "primary"), (["right", "short"], "right"), ([], None)],
)
def test_one_of_several_rewards_trains(names: list[str], key: str | None) -> None:
    assert primary_key_of(names) == key
