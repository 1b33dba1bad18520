"""A policy of one's own loop: verl's gradient, one transaction a step, and a restart from the last committed step."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

import numpy as np
import pytest

from lightstream.runtime.kafka import create_topics
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError, TrainingError
from lightstream.schemas.records import StepOutcome, Trajectory
from lightstream.trainers import VERL, Group, Policy, Step, make_tiny_model, trajectories
from lightstream.trainers.engines.verl.engine import VerlEngine
from lightstream.trainers.engines.verl.primitives import PrimitiveEngine
from lightstream.trainers.rollouts.batch import build_arrays, select_rows, weigh_rows
from tests.support.checkpoints import checkpoint_in

from .support.instant_store import InstantStore
from .support.killed_trainer import part_of
from .support.trajectories import make_trajectory, make_triplet, random_trajectory
from .test_consumer import committed

TASKS, SIZE = 2, 3
DATASET = [f"task {i}" for i in range(5)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("primitives") / "model")


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"proxy_url": "http://127.0.0.1:9"})  # nobody calls it here


NewPolicy: TypeAlias = "Callable[..., Policy]"


@pytest.fixture
async def new_policy(model: Path) -> AsyncGenerator[NewPolicy]:
    """Makes policies that have asked for their first rollouts."""
    stores: list[InstantStore] = []

    def made(settings: Settings, of: Path = model, **options: Any) -> Policy:
        stores.append(InstantStore(settings))
        given: dict[str, Any] = {
            "learning_rate": 1e-3,
            "logprob_gap_max": math.inf,  # those of these rollouts are made up
            "device": "cpu",
            "threads": 1,
        } | options
        policy = Policy(of, store=stores[-1], **given)
        policy.sample(DATASET, tasks=TASKS, rollouts_per_task=SIZE)
        return policy

    yield made
    for store in stores:
        await store.close()


def steps_of(settings: Settings, policy: Policy, **options: Any) -> AsyncGenerator[Step]:
    given: dict[str, Any] = {"trainer_id": "own", "groups": TASKS, "settings": settings} | options
    return trajectories("own", policy=policy, **given)


def advantages(step: Step) -> list[tuple[Trajectory, float]]:
    mean = fmean(t.reward or 0.0 for t in step.trajectories)
    return [(t, (t.reward or 0.0) - mean + 0.1) for t in step.trajectories]


async def learn(policy: Policy, step: Step, *, publish: bool = True) -> None:
    step.metrics |= await policy.forward_backward(advantages(step))
    step.metrics |= await policy.optim_step()
    if publish:
        await policy.publish()
    policy.sample(DATASET, tasks=TASKS, rollouts_per_task=SIZE)


def weights(data_dir: Path, url: str | None) -> bytes:
    return (checkpoint_in(data_dir, url) / "model.safetensors").read_bytes()


def groups(count: int = 2) -> list[Group]:
    return [
        Group(
            f"g{g}",
            tuple(
                random_trajectory(f"g{g}-{i}", group_id=f"g{g}", group_size=SIZE, run_id="own", policy_version=0)
                for i in range(SIZE)
            ),
        )
        for g in range(count)
    ]


def scored(chosen: list[Group]) -> list[tuple[Trajectory, float]]:
    """As GRPO has it."""
    data: list[tuple[Trajectory, float]] = []
    for group in chosen:
        rewards = np.array([t.reward for t in group.trajectories], np.float64)
        deviation = rewards.std(ddof=1)
        data += [
            (t, float((r - rewards.mean()) / (deviation + 1e-6)))
            for t, r in zip(group.trajectories, rewards, strict=True)
        ]
    return data


def test_the_halves_are_the_update_of_the_built_in(tmp_path: Path, model: Path) -> None:
    """The same batch, once by ``update`` and once by the halves: the same weights to the bit."""
    options: dict[str, Any] = {"model": model, "steps": 1, "learning_rate": 1e-3, "device": "cpu", "threads": 1}
    chosen = groups(4)
    built_in = VerlEngine(VERL(**options), model)
    arrays = build_arrays(select_rows(chosen))
    found = built_in.update(arrays, policy_version=0)
    halves = PrimitiveEngine(VERL(**options), model)
    own = build_arrays(weigh_rows(scored(chosen)))
    assert own.advantages.tolist() == arrays.advantages.tolist()
    metrics = halves.forward_backward(own, loss="vanilla", policy_version=0, seed=(0,))
    metrics |= halves.optim_step(learning_rate=None)
    for engine, name in ((built_in, "built-in"), (halves, "halves")):
        (tmp_path / name).mkdir()
        engine.save_weights(tmp_path / name)
    halves_wrote, built_in_wrote, first = (
        (folder / "model.safetensors").read_bytes() for folder in (tmp_path / "halves", tmp_path / "built-in", model)
    )
    assert halves_wrote == built_in_wrote != first
    for name in ("grad_norm", "actor/pg_loss", "logprob_diff_max"):
        assert metrics[name] == found[name]


def test_gradients_add_up_until_they_are_applied(model: Path) -> None:
    options: dict[str, Any] = {"model": model, "steps": 1, "device": "cpu", "threads": 1, "gradient_norm_max": 1e9}
    engine = PrimitiveEngine(VERL(**options), model)
    arrays = build_arrays(weigh_rows(scored(groups())))
    norms: list[float] = []
    for times in (1, 2, 0):
        for _ in range(times):
            engine.forward_backward(arrays, loss="gpg", policy_version=None, seed=(0,))
        norms.append(engine.optim_step(learning_rate=0.0)["grad_norm"])
    assert norms == [pytest.approx(norms[0]), pytest.approx(2 * norms[0], rel=1e-5), 0.0]
    assert norms[0] > 0


def test_advantages_of_calls_and_bad_ones() -> None:
    told = make_trajectory("r", triplets=[make_triplet([1], [2]), make_triplet([7, 8], [9, 10], call_index=1)])
    rows = weigh_rows([(told, (0.5, -2.0))])
    assert build_arrays(rows).advantages.tolist() == [0.5, -2.0, -2.0]
    assert rows.triplets_used == {("r", "r-a1"): 2}
    assert weigh_rows([(told, (0.5, 0.0))]).not_trained == {("r", "r-a1"): {"no_signal": 1}}
    with pytest.raises(ValueError, match="r has 2 triplets, and 1 advantages"):
        weigh_rows([(told, [1.0])])
    with pytest.raises(ValueError, match="finite numbers within float32 are needed"):
        weigh_rows([(told, float("nan"))])


@pytest.mark.parametrize("options", [{}, {"lora_rank": 4}], ids=["model", "adapter"])
async def test_a_run_in_pieces_has_the_weights_of_one_in_one_go(
    settings: Settings, new_policy: NewPolicy, options: dict[str, Any]
) -> None:
    """The second one's bodies are left by an exception at first; its second step is saved, and not published."""

    async def train(name: str, pieces: list[int], fails: tuple[bool, ...]) -> Settings:
        part = part_of(settings, name)
        part.data_dir.mkdir()
        create_topics(part)
        for last in pieces:
            for fail in fails:
                policy = new_policy(part, **options)
                with suppress(ZeroDivisionError):
                    async with aclosing(steps_of(part, policy, steps=last)) as steps:
                        async for step in steps:
                            await learn(policy, step, publish=step.number != 2)
                            if fail:
                                raise ZeroDivisionError
        return part

    whole = await train("whole", [3], (False,))
    pieces = await train("pieces", [1, 2, 3], (True, False))
    last = {part.topic_prefix: committed(part, 3) for part in (whole, pieces)}
    for steps in last.values():
        assert [(s.outcome, s.resources_id) for s in steps] == [
            (StepOutcome.UPDATED, resources_id) for resources_id in ("own-v1", None, "own-v2")
        ]
        consumed = [c for s in steps for c in s.consumed]
        assert sorted(c.rollout_id for c in consumed) == sorted(
            f"own-s{step}-g{group}-{i}" for step in (1, 2, 3) for group in range(TASKS) for i in range(SIZE)
        )
        assert all(c.triplet_count for c in consumed)
    of_whole, of_pieces = (
        [weights(part.data_dir, s.checkpoint_url) for s in last[part.topic_prefix]] for part in (whole, pieces)
    )
    assert of_whole == of_pieces
    assert len(set(of_whole)) == 3
    kept = {checkpoint_in(pieces.data_dir, s.checkpoint_url) for s in last[pieces.topic_prefix]}
    assert kept < set((pieces.data_dir / "checkpoints" / "own").iterdir()), "those and version 0"


async def test_weights_that_are_served_are_kept_and_older_ones_are_not(
    settings: Settings, new_policy: NewPolicy
) -> None:
    policy = new_policy(settings, keep_checkpoints=2)
    async with aclosing(steps_of(settings, policy, steps=5)) as steps:
        async for step in steps:
            await learn(policy, step, publish=step.number == 1)
    made = committed(settings, 5)
    kept = [made[0], made[3], made[4]]  # the served one, and two
    folders = (settings.data_dir / "checkpoints" / "own").iterdir()
    assert {f.name for f in folders if "step-000000" not in f.name} == {Path(s.checkpoint_url or "").name for s in kept}


async def test_a_step_without_a_signal_changes_nothing(settings: Settings, new_policy: NewPolicy) -> None:
    policy = new_policy(settings)
    async with aclosing(steps_of(settings, policy, steps=1)) as steps:
        async for step in steps:
            found = await policy.forward_backward((t, 0.0) for t in step.trajectories)
            assert found["rows/computed"] == 0
            assert (await policy.optim_step())["grad_norm"] == 0
    (made,) = committed(settings, 1)
    assert (made.outcome, made.checkpoint_url) == (StepOutcome.UNCHANGED, None)
    assert {tuple(c.not_trained) for c in made.consumed} == {("no_signal",)}


async def test_what_cannot_be_done_is_refused(
    settings: Settings, new_policy: NewPolicy, model: Path, tmp_path: Path
) -> None:
    policy = new_policy(settings)
    with pytest.raises(TrainingError, match="no loop trains this policy now"):
        await policy.optim_step()
    async with aclosing(steps_of(settings, policy)) as steps:
        step = await anext(steps)
        with pytest.raises(SettingsError, match="policy_loss is 'ppo'; there are vanilla"):
            await policy.forward_backward(advantages(step), loss="ppo")
        await policy.forward_backward(advantages(step))
        with pytest.raises(TrainingError, match="step 1 leaves gradients that no optim_step applied"):
            await anext(steps)
    policy.sample(DATASET, tasks=TASKS, rollouts_per_task=SIZE)
    async with aclosing(steps_of(settings, policy, steps=1)) as steps:
        async for step in steps:
            await learn(policy, step)
            with pytest.raises(TrainingError, match="step 1 has published its weights already"):
                await policy.optim_step()
            with pytest.raises(TrainingError, match="trained by another loop"):
                await anext(trajectories("other", trainer_id="other", policy=policy, settings=settings))
    committed(settings, 1)
    other = make_tiny_model(tmp_path / "other", seed=1)
    with pytest.raises(TrainingError, match=r"begun with something else \(model: "):
        await anext(steps_of(settings, new_policy(settings, other)))
    with pytest.raises(SettingsError, match="Policy has no steps_ahead, validate_every"):
        Policy(model, validate_every=1, steps_ahead=1)
    with pytest.raises(ValueError, match="0 tasks of 0"):
        policy.sample([])
