"""Environments of verifiers: their agent loop through our adapter, and their rubric's rewards."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from typing import Any

import pytest
import small_sums
import verifiers.v1 as vf
from verifiers.v1.utils.loaders import load_environment, resolve_env_config

from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError
from lightstream.schemas.types import LLM
from lightstream.trainers.environments import EnvironmentFailedError
from lightstream.trainers.environments.adapters.verifiers import verifiers_environment
from lightstream.trainers.environments.named import named_environment
from tests.trainers.environments.support import model, rewards_of

ROLLOUTS = small_sums.TASKS


def says(messages: list[dict[str, Any]]) -> str:
    """An answer that follows from the conversation alone, and is right now and then."""
    number = int(str(messages[0]["content"]).split()[0])
    chance = random.Random(f"{number}-{len(messages)}")
    return f"{2 * number + chance.choice([0, 0, 1])}{'!' * chance.randrange(4)}"


def own_rewards(llm: LLM, count: int) -> list[float]:
    """The rewards of the library's own run."""

    async def main() -> list[float]:
        environment = load_environment(
            resolve_env_config({"taskset": {"id": "small_sums"}, "agent": {"runtime": {"type": "subprocess"}}})
        )
        os.environ["OWN_API_KEY"] = "none"
        client = vf.EvalClientConfig(base_url=llm.endpoint, api_key_var="OWN_API_KEY")
        context = vf.ModelContext(client=client, model=llm.model, sampling=vf.SamplingConfig())
        room = asyncio.Semaphore(16)
        async with environment.serving():
            tasks = list(environment.taskset.take(count))
            slots = [slot for task in tasks for slot in environment.slots(task, 1)]
            episodes = await asyncio.gather(*(environment.run_slot(slot, context, room) for slot in slots))
        assert all(episode.ok for episode in episodes)
        return [episode.traces[0].reward for episode in episodes]

    return asyncio.run(main())


def test_rewards_are_the_librarys_own(settings: Settings) -> None:
    environment = verifiers_environment("small_sums", tasks=ROLLOUTS)
    with model(settings, says) as llm:
        rewards = rewards_of(environment, environment.train, llm, range(ROLLOUTS))
        own = own_rewards(llm, ROLLOUTS)
    assert [reward["reward"] for reward in rewards] == own
    assert len(set(own)) > 5
    assert all(reward["reward"] == reward["right_part"] + reward["short_part"] for reward in rewards)


def test_tasks_have_a_digest_and_splits() -> None:
    first, again = (verifiers_environment("small_sums", tasks=20, validation_tasks=5) for _ in range(2))
    assert first.digest == again.digest != verifiers_environment("small_sums", tasks=21).digest
    assert (len(first.train), len(first.validation or ())) == (20, 5)
    assert first.train[3]["answer"] == 6


@pytest.mark.parametrize(
    ("answer", "reason"),
    [("raise", "the rubric has a bug"), ("nan", "no finite number|not.*finite|nan")],
    ids=["raises", "nan"],
)
def test_an_episode_without_a_reward_fails_with_a_reason(settings: Settings, answer: str, reason: str) -> None:
    environment = verifiers_environment("small_sums", tasks=1)
    with model(settings, lambda messages: answer) as llm:
        (error,) = rewards_of(environment, environment.train, llm, [0])
    assert isinstance(error, EnvironmentFailedError)
    with pytest.raises(EnvironmentFailedError, match=reason):
        raise error


def test_an_episode_that_hangs_is_scored_as_it_stands_at_its_limit(settings: Settings) -> None:
    environment = verifiers_environment("small_sums", tasks=1, env={"agent": {"timeout": {"rollout": 0.5}}})
    with model(settings, lambda messages: "hang") as llm:
        (error,) = rewards_of(environment, environment.train, llm, [0])
    assert error == {"reward": 0.25, "right_part": 0.0, "short_part": 0.25}, "as the library does"
    assert not [name for name in os.environ if name.startswith("LIGHTSTREAM_API_KEY_")]


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: named_environment("verifiers:no_such_set", {}), "cannot load 'no_such_set'"),
        (lambda: named_environment("verifiers:small_sums", {"colour": 1}), "does not take"),
        (lambda: verifiers_environment("small_sums", env={"taskset": {"colour": 1}}), "cannot load 'small_sums'"),
    ],
    ids=["name", "option", "configuration"],
)
def test_environments_that_are_none_are_named(make: Callable[[], Any], problem: str) -> None:
    with pytest.raises(SettingsError, match=problem):
        make()


def test_fewer_tasks_than_wanted_are_named() -> None:
    with pytest.raises(SettingsError, match=f"has {ROLLOUTS} tasks of 'small_sums', and {ROLLOUTS} and 1 for"):
        verifiers_environment("small_sums", tasks=ROLLOUTS, validation_tasks=1)
