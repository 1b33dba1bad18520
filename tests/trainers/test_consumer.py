"""An algorithm as a consumer, on a real Kafka: each group once, a step with all it made or not at all."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from pathlib import Path

import pytest
from confluent_kafka import Producer

from lightstream.runtime.kafka import producer_config
from lightstream.runtime.schema_registry import codec_for
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError, TrainingError
from lightstream.schemas.records import Record, ResourcesRecord, StepOutcome, TrainingStep, Trajectory
from lightstream.schemas.topics import RESOURCES, TRAINING_STEPS, TRAJECTORIES, Topic
from lightstream.schemas.types import EnqueueRolloutRequest, PromptTemplate
from lightstream.trainers import Group, Step, make_tiny_model, trajectories
from lightstream.trainers.ledger.reading import read_topic
from tests.support.waiting import eventually

from .support.instant_store import InstantStore
from .test_trainer import trainer_of, verl_of

SIZE = 3


async def enqueue(settings: Settings, *groups: str, run_id: str = "mine") -> None:
    store = InstantStore(settings)
    await store.enqueue_many_rollouts(
        [
            EnqueueRolloutRequest(
                input=None, rollout_id=f"{group}-{i}", group_id=group, group_size=SIZE, run_id=run_id, mode="train"
            )
            for group in groups
            for i in range(SIZE)
        ]
    )
    await store.close()


def steps_of(settings: Settings, run_id: str = "mine", **options: object) -> AsyncGenerator[Step]:
    return trajectories(run_id, trainer_id="consumer", settings=settings, **options)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # any of its options


def records(settings: Settings, topic: Topic) -> list[Record]:
    return [record for _, record in read_topic(settings, topic, codec_for(settings), group_id="test")]


def committed(settings: Settings, count: int) -> list[TrainingStep]:
    """The steps, once there are so many: a transaction shows a moment after its commit has returned."""
    eventually(lambda: len(records(settings, TRAINING_STEPS)) == count, what=f"{count} steps are visible")
    return [record for record in records(settings, TRAINING_STEPS) if isinstance(record, TrainingStep)]


def names(groups: Sequence[Group]) -> list[str]:
    return [group.group_id for group in groups]


async def test_a_step_is_committed_with_what_it_published_when_its_body_is_left(settings: Settings) -> None:
    await enqueue(settings, "a", "b", "c", "d")
    await enqueue(settings, "other", run_id="other")
    seen: list[str] = []
    async with aclosing(steps_of(settings, groups=2, steps=2)) as steps:
        async for step in steps:
            committed(settings, step.number - 1)  # and not this one
            assert len(records(settings, RESOURCES)) == step.number - 1
            assert (step.resources.version if step.resources else None) == {1: None, 2: 0}[step.number]
            assert [len(group.trajectories) for group in step.groups] == [SIZE, SIZE]
            assert len(step.trajectories) == 2 * SIZE
            seen += names(step.groups)
            step.metrics["tried"] = float(step.number)
            step.publish({"prompt": PromptTemplate(template=f"say {step.number}")})
    assert sorted(seen) == ["a", "b", "c", "d"]
    first, second = committed(settings, 2)
    assert [first.metrics["tried"], second.metrics["tried"]] == [1.0, 2.0]
    assert (first.resources_id, second.resources_id) == ("mine-v0", "mine-v1")
    assert (first.outcome, second.steps_planned) == (StepOutcome.UPDATED, 2)
    published = [r for r in records(settings, RESOURCES) if isinstance(r, ResourcesRecord)]
    assert [(r.resources_id, "say 2" in r.resources["prompt"]) for r in published] == [
        ("mine-v0", False),
        ("mine-v1", True),
    ]
    assert sorted(c.rollout_id for step in (first, second) for c in step.consumed) == sorted(
        f"{group}-{i}" for group in "abcd" for i in range(SIZE)
    )


@pytest.mark.parametrize("how", ["raises", "breaks"])
async def test_a_step_whose_body_is_not_left_comes_again(settings: Settings, how: str) -> None:
    await enqueue(settings, "a")
    with suppress(ZeroDivisionError):
        async with aclosing(steps_of(settings)) as steps:
            async for step in steps:
                step.publish({"prompt": PromptTemplate(template="lost")})
                if how == "breaks":
                    break
                raise ZeroDivisionError
    assert records(settings, TRAINING_STEPS) == records(settings, RESOURCES) == []
    async with aclosing(steps_of(settings)) as steps:
        async for step in steps:
            assert (step.number, names(step.groups)) == (1, ["a"])
            step.stop()
    assert [(step.step, step.outcome) for step in committed(settings, 1)] == [(1, StepOutcome.UNCHANGED)]


async def test_what_comes_later_and_twice_is_taken_once_across_restarts(settings: Settings) -> None:
    for number, group in enumerate(("a", "b", "c"), 1):
        await enqueue(settings, "a", *([group] if group != "a" else []))  # the first again each time
        async with aclosing(steps_of(settings, steps=number)) as steps:
            assert [names(step.groups) async for step in steps] == [[group]]
    async with aclosing(steps_of(settings, steps=3)) as steps:
        assert [step async for step in steps] == [], "all steps are made"


async def test_groups_of_ones_own(settings: Settings) -> None:
    await enqueue(settings, "a", "b")

    def parity(trajectory: Trajectory) -> tuple[str, int]:
        return f"number {trajectory.rollout_id.rpartition('-')[2]}", 2

    async with aclosing(steps_of(settings, groups=SIZE, group_by=parity, steps=1)) as steps:
        (groups,) = [step.groups async for step in steps]
    assert sorted((g.group_id, [t.rollout_id for t in g.trajectories]) for g in groups) == [
        (f"number {i}", [f"a-{i}", f"b-{i}"]) for i in range(SIZE)
    ]


async def test_a_second_consumer_and_another_algorithm_are_refused(settings: Settings, tmp_path: Path) -> None:
    await enqueue(settings, "a", "b")
    async with aclosing(steps_of(settings)) as steps:
        await anext(steps)
        with pytest.raises(TrainingError, match="run 'mine' is being trained by process"):
            await anext(trajectories("mine", trainer_id="second", settings=settings))
    verl = verl_of(make_tiny_model(tmp_path / "model"))
    nobody_serves = settings.model_copy(update={"proxy_url": "http://127.0.0.1:9"})
    await asyncio.to_thread(trainer_of(nobody_serves, verl, InstantStore(settings), []).fit, None, ["task"])
    with pytest.raises(TrainingError, match=r"begun with something else \(algorithm: VERL grpo before, a consumer"):
        await anext(trajectories("trainer", trainer_id="trainer", settings=settings))
    with pytest.raises(SettingsError, match="groups is 0"):
        await anext(steps_of(settings, groups=0))


async def test_a_record_that_is_no_trajectory_is_passed_over_and_counted(settings: Settings) -> None:
    producer = Producer(producer_config(settings, linger_ms=0))
    producer.produce(TRAJECTORIES.full_name(settings.topic_prefix), b"nonsense")
    assert producer.flush(300) == 0
    await enqueue(settings, "a")
    async with aclosing(steps_of(settings, steps=1)) as steps:
        assert [names(step.groups) async for step in steps] == [["a"]]
    assert committed(settings, 1)[0].metrics["trajectories/undecodable"] == 1.0


class Open(InstantStore):
    """May be opened, as a store of the user's is."""

    async def start(self) -> None:
        pass


def test_the_consumer_of_the_page(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "contract.md").read_text("utf-8")
    program = re.findall(r"^```python no-run\n(.*?)^```", page, re.DOTALL | re.MULTILINE)[0]
    for name, value in settings.to_environment().items():
        monkeypatch.setenv(name, value)
    stores: list[Open] = []

    def opened(_: Settings) -> Open:
        stores.append(Open(settings))
        return stores[-1]

    monkeypatch.setattr("lightstream.trainers.KafkaLightningStore", opened)
    shortened = program.replace("STEPS, TASKS = 60", "STEPS, TASKS = 3").replace(
        'trajectories("my-run"', 'trajectories("my-run", trainer_id="page"'
    )
    exec(shortened, {"__name__": "page"})  # noqa: S102  # our own page
    first, second, third = committed(settings, 3)
    assert [step.resources_id for step in (first, second, third)] == ["my-run-v0", "my-run-v1", "my-run-v2"]
    assert all("best" in step.metrics for step in (first, second, third))
    asked = [
        f"my-run-{step}-{task}-{member}" for step in (1, 2, 3) for task in ("apples", "pears") for member in (0, 1)
    ]
    assert stores[0].asked == asked
    assert sorted(c.rollout_id for step in (first, second, third) for c in step.consumed) == sorted(asked)
