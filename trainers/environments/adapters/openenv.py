"""OpenEnv: episodes of a server of it, and an environment of ours as such a server."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from lightstream.producers import rollout
from lightstream.producers.runner.primary import primary_key_of
from lightstream.schemas.types import LLM

from ..chat import complete
from ..environment import Environment, EnvironmentFailedError, Verifier, checked_reward
from ..sets import Task, TaskSet
from .library import library

DISTRIBUTION = "openenv"


def openenv_environment(
    url: str,
    *,
    name: str = "",
    episodes: int = 1000,
    validation_episodes: int = 0,
    seed: int = 0,
    turns_max: int = 50,
    system: str = "",
    observe: Callable[[Mapping[str, Any]], str] | None = None,
    act: Callable[[str], Mapping[str, Any]] | None = None,
) -> Environment:
    """Episodes of an OpenEnv server. The reward is the sum of its rewards, up to ``turns_max`` turns.

    Args:
        url: the server's address, from the Runners too.
        name: of the task set; by default the address without user, password and query.
        episodes, validation_episodes: how many tasks; each is a seed of ``reset``.
        seed: of the first episode.
        turns_max: actions at most; then the episode ends as it is.
        system: what the model is told first: the rules.
        observe: text of an observation; by default its only text, else all of it as JSON.
        act: action of an answer; by default the answer as a JSON object, else ``{"message": answer}``.

    Raises:
        SettingsError: OpenEnv is not installed, or another version is.
    """
    library(DISTRIBUTION)
    shown = without_secrets(url)
    tasks = [
        Task(f"{split}/{number}", {"seed": first + number}, {"turns_max": turns_max}, split)
        for split, count, first in (("train", episodes, seed), ("validation", validation_episodes, seed + episodes))
        for number in range(count)
    ]

    async def play(task: Any, llm: LLM) -> float:
        client = library(DISTRIBUTION, "openenv.core.generic_client").GenericEnvClient(base_url=url)
        messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
        rewards: list[float] = []
        try:
            result = await client.reset(seed=task["seed"])
            for _ in range(turns_max):
                messages.append({"role": "user", "content": (observe or text_of)(result.observation)})
                answer = (await complete(llm, messages)).get("content") or ""
                messages.append({"role": "assistant", "content": answer})
                result = await client.step(dict((act or action_of)(answer)))
                if result.reward is not None:
                    rewards.append(_number(result.reward))
                if result.done:
                    break
        except (OSError, RuntimeError) as error:  # ConnectionError among them
            raise EnvironmentFailedError(
                f"the OpenEnv server {shown} failed: {type(error).__name__}: {str(error).replace(url, shown)}."
            ) from error
        finally:
            await client.close()
        if not rewards:
            raise EnvironmentFailedError(f"the OpenEnv server {shown} gave no reward in the episode.")
        return sum(rewards)

    return Environment(TaskSet(f"openenv:{name or shown}", tasks), rollout(play), library=DISTRIBUTION)


def openenv_app(tasks: TaskSet, verifier: Verifier) -> Any:
    """A task set and its verifier as an OpenEnv server: an ASGI application, for ``uvicorn``.

    ``reset`` chooses a task by ``seed``, or by ``index``; its observation is ``{"prompt": …}``. ``step`` takes
    ``{"answer": …}``, and ends the episode with the reward.

    Raises:
        SettingsError: OpenEnv is not installed, or another version is.
    """
    types = library(DISTRIBUTION, "openenv.core.env_server.types")
    interfaces = library(DISTRIBUTION, "openenv.core.env_server.interfaces")

    class Answer(types.Action):  # type: ignore[name-defined,misc]  # the library's class, which is imported by name
        answer: str

    class Prompt(types.Observation):  # type: ignore[name-defined,misc]  # as there
        prompt: str

    class OneAnswer(interfaces.Environment):  # type: ignore[name-defined,misc]  # as there
        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self) -> None:
            super().__init__()
            self._task = tasks.tasks[0]
            self._state = types.State()

        def reset(self, seed: int | None = None, episode_id: str | None = None, **given: Any) -> Any:
            chance = random.Random(seed)  # noqa: S311  # a choice, not a secret
            index = given.get("index")
            self._task = tasks.tasks[chance.randrange(len(tasks)) if index is None else int(index)]
            self._state = types.State(episode_id=episode_id, step_count=0)
            return Prompt(prompt=_text(self._task.input), done=False, reward=None)

        def step(self, action: Any, timeout_s: float | None = None, **_: Any) -> Any:
            del timeout_s
            verdict: Any = checked_reward(verifier(self._task, action.answer), "the verifier")
            reward = verdict[primary_key_of(verdict)] if isinstance(verdict, Mapping) else verdict
            self._state.step_count += 1
            return Prompt(prompt=_text(self._task.input), done=True, reward=reward)

        @property
        def state(self) -> Any:
            return self._state

    server = library(DISTRIBUTION, "openenv.core.env_server.http_server")
    return server.create_fastapi_app(OneAnswer, Answer, Prompt, max_concurrent_envs=64)


def without_secrets(url: str) -> str:
    """An address as names and messages show it: without user, password, query and fragment."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def text_of(observation: Mapping[str, Any]) -> str:
    """An observation as text: its only text, else all of it as JSON."""
    texts = [value for value in observation.values() if isinstance(value, str)]
    return texts[0] if len(texts) == 1 else json.dumps(dict(observation), ensure_ascii=False)


def action_of(answer: str) -> Mapping[str, Any]:
    """An answer as an action: a JSON object, else a message."""
    try:
        value: Any = json.loads(answer)
    except ValueError:
        return {"message": answer}
    return value if isinstance(value, dict) else {"message": answer}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _number(reward: Any) -> float:
    checked = checked_reward(reward, "the OpenEnv server")
    if isinstance(checked, Mapping):
        raise EnvironmentFailedError(f"the OpenEnv server gave the reward {reward!r:.100} for a turn, and no number.")
    return checked
