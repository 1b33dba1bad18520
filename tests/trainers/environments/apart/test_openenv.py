"""OpenEnv: a real server of it, and an environment of ours as one, each asked by the real client."""

from __future__ import annotations

import random
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest
import uvicorn
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment as TheirEnvironment
from openenv.core.env_server.types import Action, Observation, State

from lightstream.runtime.ports import free_port
from lightstream.runtime.settings import Settings
from lightstream.trainers.environments import EnvironmentFailedError, Task, task_set
from lightstream.trainers.environments.adapters.openenv import openenv_app, openenv_environment
from tests.support.waiting import eventually
from tests.trainers.environments.support import model, rewards_of

ROLLOUTS = 1000
TURNS = 3


class Move(Action):
    message: str


class Seen(Observation):
    text: str


class Echo(TheirEnvironment[Move, Seen, State]):
    """Rewards a digit that is near its own, in each of three turns."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Seen:
        self._digit = random.Random(seed).randrange(10)
        self._state = State(episode_id=episode_id, step_count=0)
        return Seen(text=f"Say a digit ({seed}).", reward=None, done=False)

    def step(self, action: Move, timeout_s: float | None = None, **_: Any) -> Seen:
        self._state.step_count += 1
        if action.message == "raise":
            raise RuntimeError("the game is broken")
        reward = None if action.message == "nothing" else 1 / (1 + abs(int(action.message) - self._digit))
        return Seen(text="again", reward=reward, done=self._state.step_count == TURNS)

    @property
    def state(self) -> State:
        return self._state


@contextmanager
def served(app: Any) -> Generator[str]:
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        eventually(lambda: server.started, what="the server has started")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()


def says(messages: list[dict[str, Any]]) -> str:
    seed = str(messages[0]["content"]).split("(")[1].split(")")[0]
    return str(random.Random(f"{seed}-{len(messages)}").randrange(10))


def own_reward(seed: int) -> float:
    game = Echo()
    game.reset(seed=seed)
    total = 0.0
    for turn in range(TURNS):
        said = says([{"content": f"({seed})"}] * (2 * turn + 1))
        total += game.step(Move(message=said)).reward or 0.0
    return total


def test_rewards_are_the_servers_own(settings: Settings) -> None:
    with served(create_fastapi_app(Echo, Move, Seen, max_concurrent_envs=64)) as url, model(settings, says) as llm:
        environment = openenv_environment(url, episodes=ROLLOUTS)
        rewards = rewards_of(environment, environment.train, llm, range(ROLLOUTS))
    assert rewards == [own_reward(seed) for seed in range(ROLLOUTS)]


@pytest.mark.parametrize(
    ("answer", "reason"), [("raise", "failed"), ("nothing", "gave no reward")], ids=["raises", "no reward"]
)
def test_an_episode_without_a_reward_fails_with_a_reason(settings: Settings, answer: str, reason: str) -> None:
    with (
        served(create_fastapi_app(Echo, Move, Seen, max_concurrent_envs=4)) as url,
        model(settings, lambda messages: answer) as llm,
    ):
        environment = openenv_environment(url, episodes=1)
        (error,) = rewards_of(environment, environment.train, llm, [0])
    assert isinstance(error, EnvironmentFailedError)
    assert reason in str(error)


def test_a_server_that_is_away_fails_the_attempt(settings: Settings) -> None:
    environment = openenv_environment(f"http://127.0.0.1:{free_port()}", episodes=1)
    with model(settings, says) as llm:
        (error,) = rewards_of(environment, environment.train, llm, [0])
    assert isinstance(error, EnvironmentFailedError)


def test_a_task_set_of_ours_is_a_server_of_theirs(settings: Settings) -> None:
    sums = task_set("sums", [{"input": f"{n} + {n}", "metadata": {"answer": 2 * n}} for n in range(50)])

    def is_right(task: Task, answer: Any) -> float:
        return float(answer == str(task.metadata["answer"]))

    def adds(messages: list[dict[str, Any]]) -> str:
        return str(sum(map(int, str(messages[-1]["content"]).split(" + "))))

    with served(openenv_app(sums, is_right)) as url, model(settings, adds) as llm:
        environment = openenv_environment(url, episodes=20, act=lambda answer: {"answer": answer})
        assert rewards_of(environment, environment.train, llm, range(20)) == [1.0] * 20
        wrong = openenv_environment(url, episodes=20, act=lambda answer: {"answer": f"{answer}!"})
        assert rewards_of(wrong, wrong.train, llm, range(20)) == [0.0] * 20
