"""Learning from traffic on a real Kafka: each window one step, each trajectory once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from lightstream.cli.delete_run import delete_run
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError, TrainingError
from lightstream.schemas.records import StepOutcome, TaskRewards, TrainingStep, Trajectory
from lightstream.trainers import Continuous, Reinforce, RejectionSampling, make_tiny_model
from lightstream.trainers.algorithms.continuous.continuous import PlannedWindow
from tests.support.checkpoints import checkpoint_in

from .support.traffic import RUN, publish, simulated, traffic
from .support.trajectories import make_triplet
from .test_consumer import committed


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("learn") / "model")


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"proxy_url": "http://127.0.0.1:9"})  # nobody calls it here


def learner(settings: Settings, model: Path, **options: Any) -> Continuous:
    given: dict[str, Any] = {
        "run_id": RUN,
        "agent": "support",
        "learning_rate": 1e-3,
        "logprob_gap_max": math.inf,  # those of these rollouts are made up
        "device": "cpu",
        "threads": 1,
        "settings": settings,
        "progress": False,
    } | ({} if "count" in options else {"window": 100.0, "lateness": 30.0})
    return Continuous(model, **given | options)


async def learned(continuous: Continuous, windows: int) -> list[PlannedWindow]:
    async with aclosing(continuous.steps(windows)) as steps:
        return [planned async for planned in steps]


def weights(settings: Settings, step: TrainingStep) -> bytes:
    return (checkpoint_in(settings.data_dir, step.checkpoint_url) / "model.safetensors").read_bytes()


def reasons(step: TrainingStep) -> dict[str, dict[str, int]]:
    return {consumed.rollout_id: dict(consumed.not_trained) for consumed in step.consumed if consumed.not_trained}


@pytest.mark.parametrize("kind", ["reinforce", "sft"])
async def test_each_window_is_a_step_with_a_version_and_a_restart_goes_on(
    settings: Settings, model: Path, kind: str
) -> None:
    publish(settings, simulated(40))
    first = await learned(learner(settings, model, learner=kind), 1)
    rest = await learned(learner(settings, model, learner=kind), 3)
    steps = committed(settings, 3)
    assert [planned.window.number for planned in (*first, *rest)] == [0, 1, 2]
    assert [step.window.number for step in steps if step.window] == [0, 1, 2]
    assert [step.resources_id for step in steps] == [f"{RUN}-v{version}" for version in (1, 2, 3)]
    assert len({weights(settings, step) for step in steps}) == 3
    consumed = [c.rollout_id for step in steps for c in step.consumed]
    assert sorted(consumed) == sorted(f"r{number}" for number in range(30)), "each once"
    for planned, step in zip((*first, *rest), steps, strict=True):
        trained = [c for c in step.consumed if c.triplet_count]
        assert len(trained) <= planned.learned
        assert trained
        assert all(c.triplet_count or c.not_trained for c in step.consumed)


async def test_a_reward_counts_within_the_lateness_and_later_ones_change_nothing(
    settings: Settings, model: Path
) -> None:
    good, bad = traffic("good", 10, reward=1.0), traffic("bad", 20, reward=None)
    in_time = traffic("bad", 20, reward=0.0, revision=1, revised_s=125)
    too_late = traffic("good", 10, reward=0.0, revision=1, revised_s=140)
    late = traffic("late", 30, reward=1.0)
    publish(settings, [good, bad, in_time, traffic("next", 131, reward=1.0), too_late, late])
    publish(settings, [traffic("other", 150, reward=0.0), traffic("end", 400, reward=1.0)])
    await learned(learner(settings, model), 2)
    first, second = committed(settings, 2)
    assert [(c.rollout_id, c.revision) for c in first.consumed] == [("bad", 1), ("good", 0)]
    assert first.window is not None
    assert first.window.tasks == [TaskRewards(task=first.window.tasks[0].task, count=2, total=1.0)]
    assert [c.rollout_id for c in second.consumed] == ["next", "other", "late"]
    assert set(reasons(second)["late"]) == {"late"}
    assert second.window is not None
    assert (second.window.left_out, second.window.members) == ({"late": 1}, 2)


async def test_a_window_without_rewards_teaches_nothing(settings: Settings, model: Path) -> None:
    publish(settings, [traffic("a", 10, reward=None), traffic("b", 20, reward=None), traffic("end", 400, reward=1.0)])
    (planned,) = await learned(learner(settings, model), 1)
    (step,) = committed(settings, 1)
    assert (planned.learned, step.outcome, step.resources_id) == (0, StepOutcome.UNCHANGED, None)
    assert {tuple(counts) for counts in reasons(step).values()} == {("no_reward",)}


async def test_versions_are_published_no_more_often_than_asked(settings: Settings, model: Path) -> None:
    publish(settings, simulated(60))
    await learned(learner(settings, model, min_interval_s=200.0), 4)
    steps = committed(settings, 4)
    assert [step.resources_id for step in steps] == [f"{RUN}-v1", None, f"{RUN}-v2", None]
    assert len({weights(settings, step) for step in steps}) == 4, "it learns between them too"


async def test_a_run_that_is_deleted_is_in_no_window_after_it(settings: Settings, model: Path) -> None:
    of_run = [t.model_copy(update={"run_id": "live"}) for t in simulated(30)]
    publish(settings, of_run)
    first = await learned(learner(settings, model, traffic="live"), 1)
    assert first[0].window.members
    delete_run(settings, "live")
    assert list(learner(settings, model, traffic="live").dry_run()) == []
    again = [
        traffic(f"n{number}", 1000 + number, reward=1.0).model_copy(update={"run_id": "live"}) for number in (1, 2)
    ]
    end = traffic("end", 2000, reward=None).model_copy(update={"run_id": "live"})
    publish(settings, [*again, end])
    (second,) = await learned(learner(settings, model, traffic="live"), 2)
    assert [t.rollout_id for t in second.window.members] == ["n1", "n2"], "of a new run of the same name"
    assert [[c.rollout_id for c in step.consumed] for step in committed(settings, 2)][1] == ["n1", "n2"]


async def test_a_trajectory_that_another_sampler_made_is_left_out_with_a_reason(
    settings: Settings, model: Path
) -> None:
    def of_another_sampler(made: Trajectory, version: int) -> Trajectory:
        call = make_triplet([5, 6], [7, 8], [-40.0, -40.0], reward=1.0, policy_version=version)
        named = call.model_copy(update={"agent_name": "support", "resources_id": f"{RUN}-v{version}"})
        return made.model_copy(update={"triplets": [named]})

    first = [traffic(f"a{number}", number, reward=number % 2) for number in range(4)]
    publish(settings, [*first, of_another_sampler(traffic("bad", 20, reward=1.0), 0)])
    apart = [of_another_sampler(traffic(name, 110, reward=len(name) % 2), 1) for name in ("worse", "poor")]
    publish(settings, apart)
    publish(settings, [traffic(f"b{number}", 210 + number, reward=number % 2) for number in range(4)])
    publish(settings, [traffic("end", 400, reward=None)])
    await learned(learner(settings, model, logprob_gap_max=20.0), 3)
    steps = committed(settings, 3)
    gap = [{name: [*why] for name, why in reasons(step).items()} for step in steps]
    assert gap == [{"bad": ["logprob_gap"]}, {"poor": ["logprob_gap"], "worse": ["logprob_gap"]}, {}]
    assert [step.window.left_out for step in steps if step.window] == [{"logprob_gap": 1}, {"logprob_gap": 2}, {}]
    assert [step.resources_id for step in steps] == [f"{RUN}-v1", None, f"{RUN}-v2"]
    assert {c.rollout_id: bool(c.triplet_count) for c in steps[0].consumed if c.rollout_id == "bad"} == {"bad": False}
    assert all(
        c.triplet_count for step in steps for c in step.consumed if c.rollout_id[0] in "ab" and c.rollout_id != "bad"
    )


async def test_a_budget_of_tokens_ends_it(settings: Settings, model: Path) -> None:
    publish(settings, simulated(60))
    assert len(await learned(learner(settings, model, tokens_max=1), 4)) == 1
    committed(settings, 1)


async def test_windows_by_count_and_a_second_learner(settings: Settings, model: Path) -> None:
    publish(settings, simulated(30))
    continuous = learner(settings, model, count=8, lateness=50.0)
    async with aclosing(continuous.steps(2)) as steps:
        await anext(steps)
        with pytest.raises(TrainingError, match=f"run '{RUN}' is being trained by process"):
            await learned(learner(settings, model, count=8, lateness=50.0), 1)
        other = learner(settings, model, count=8, lateness=50.0, run_id="other")
        assert [len(planned.window.members) for planned in await learned(other, 1)] == [8], "windows of its own"
        await anext(steps)
        with pytest.raises(StopAsyncIteration):
            await anext(steps)
    of_run = [step for step in committed(settings, 3) if step.run_id == RUN]
    assert [len(step.consumed) for step in of_run] == [8, 8]
    with pytest.raises(TrainingError, match="window: 8 trajectories, lateness 50 s before, 9 trajectories"):
        await learned(learner(settings, model, count=9, lateness=50.0), 3)


async def test_a_dry_run_tells_the_windows_and_writes_nothing(settings: Settings, model: Path) -> None:
    publish(settings, simulated(43))
    planned = list(learner(settings, model).dry_run())
    assert [(one.window.number, one.is_closed) for one in planned[:3]] == [(0, True), (1, True), (2, True)]
    assert not planned[-1].is_closed
    committed(settings, 0)
    done = await learned(learner(settings, model), 3)
    assert done[0].learned == planned[0].learned
    assert [one.window.members for one in done] == [one.window.members for one in planned[:3]]
    left = list(learner(settings, model).dry_run())
    assert [one.window.number for one in left] == [one.window.number for one in planned[3:]]


def scored(rewards: Sequence[float | None], *, task: int = 0) -> list[Trajectory]:
    return [traffic(f"t{number}", number, reward=reward, task=task) for number, reward in enumerate(rewards)]


def test_a_task_is_compared_with_its_mean_in_the_windows_before() -> None:
    window = [*scored([1.0, 0.0]), traffic("new", 9, reward=1.0, task=7), traffic("newer", 9, reward=0.0, task=8)]
    first = Reinforce().lesson(window, {})
    task = next(rewards for rewards in first.tasks if rewards.count == 2)
    again = Reinforce().lesson(window, {task.task: TaskRewards(task=task.task, count=4, total=4.0)})
    for lesson in (first, again):
        assert math.isclose(
            sum(a * sum(len(c.response_mask) for c in t.triplets) for t, a in lesson.data), 0, abs_tol=1e-9
        )
    by_name = {trajectory.rollout_id: advantage for trajectory, advantage in again.data}
    assert by_name["t0"] < by_name["new"], "a reward of 1 is as expected of the task that always had it"
    assert by_name["t1"] < by_name["newer"]
    assert again.metrics["learn/baselines_of_tasks"] == 2
    assert Reinforce(baseline="window").lesson(window, {task.task: task}).data == first.data


def test_the_best_of_a_window_are_chosen() -> None:
    window = scored([0.1, 0.9, None, 0.5, 0.9])
    lesson = RejectionSampling(share=0.5).lesson(window, {})
    assert [(t.rollout_id, advantage) for t, advantage in lesson.data] == [("t1", 1.0), ("t4", 1.0)]
    assert lesson.loss == "gpg"
    assert {key[0]: why for key, why in lesson.not_trained.items()} == {
        "t0": "rejected",
        "t2": "no_reward",
        "t3": "rejected",
    }
    above = RejectionSampling(at_least=0.5).lesson(window, {})
    assert [t.rollout_id for t, _ in above.data] == ["t1", "t3", "t4"]


def test_options_without_sense_are_refused(settings: Settings, model: Path) -> None:
    with pytest.raises(SettingsError, match="there is no learner 'magic'"):
        learner(settings, model, learner="magic")
    with pytest.raises(SettingsError, match="would learn from rollouts that it enqueued itself"):
        learner(settings, model, traffic=RUN)
    with pytest.raises(SettingsError, match="the share is 0"):
        RejectionSampling(share=0)
