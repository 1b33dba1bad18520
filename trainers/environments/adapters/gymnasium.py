"""Gymnasium's text environments: each observation is a message, each answer an action."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from lightstream.producers import rollout
from lightstream.schemas.types import LLM

from ..chat import complete
from ..environment import Environment, EnvironmentFailedError, in_thread
from ..sets import Task, TaskSet
from .library import library

DISTRIBUTION = "gymnasium"


def gymnasium_environment(
    make: str | Callable[[], Any],
    *,
    name: str = "",
    episodes: int = 1000,
    validation_episodes: int = 0,
    seed: int = 0,
    turns_max: int = 50,
    system: str = "",
    observe: Callable[[Any, Any], str] | None = None,
    act: Callable[[Any, str], Any] | None = None,
    **options: Any,
) -> Environment:
    """Episodes of a Gymnasium environment. The reward is the sum of its rewards, up to ``turns_max`` turns.

    Args:
        make: the id of a registered environment, or a function that makes one (in Runners too).
        name: of the task set; by default the id.
        episodes, validation_episodes: how many tasks; each is a seed of ``reset``.
        seed: of the first episode.
        turns_max: actions at most; then the episode ends as it is.
        system: what the model is told first: the rules.
        observe: text of an environment and its observation; by default the environment's ``ansi`` picture, if it
            makes one, else the observation as text.
        act: action of an environment and an answer; by default the text itself in a ``Text`` space, else the first
            whole number in it.
        options: of ``gymnasium.make``.

    Raises:
        SettingsError: Gymnasium is not installed, or another version is.
    """
    library(DISTRIBUTION)
    title = name or (make if isinstance(make, str) else getattr(make, "__name__", "environment"))
    tasks = [
        Task(f"{split}/{number}", {"seed": first + number}, {"turns_max": turns_max, "options": options}, split)
        for split, count, first in (
            ("train", episodes, seed),
            ("validation", validation_episodes, seed + episodes),
        )
        for number in range(count)
    ]

    async def play(task: Any, llm: LLM) -> float:
        gym = library(DISTRIBUTION)
        env = await in_thread(lambda: gym.make(make, **options) if isinstance(make, str) else make(), "gymnasium")
        try:
            return await _episode(env, task["seed"], llm, turns_max, system, observe or text_of, act or action_of)
        finally:
            await in_thread(env.close, "gymnasium")

    return Environment(TaskSet(f"gymnasium:{title}", tasks), rollout(play), library=DISTRIBUTION)


async def _episode(
    env: Any,
    seed: int,
    llm: LLM,
    turns_max: int,
    system: str,
    observe: Callable[[Any, Any], str],
    act: Callable[[Any, str], Any],
) -> float:
    observation, _ = await in_thread(lambda: env.reset(seed=seed), "gymnasium")
    messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    total = 0.0
    for _ in range(turns_max):
        messages.append({"role": "user", "content": observe(env, observation)})
        answer = (await complete(llm, messages)).get("content") or ""
        messages.append({"role": "assistant", "content": answer})
        action = act(env, answer)
        observation, reward, terminated, truncated, _ = await in_thread(partial(env.step, action), "gymnasium")
        total += _number(reward)
        if terminated or truncated:
            break
    return total


def text_of(env: Any, observation: Any) -> str:
    """An observation as text."""
    if env.render_mode == "ansi":
        return str(env.render())
    return observation if isinstance(observation, str) else str(observation)


def action_of(env: Any, answer: str) -> Any:
    """An answer as an action.

    In a ``Discrete`` space, an answer without an action of it is the first action.

    Raises:
        EnvironmentFailedError: the action space is of another kind.
    """
    spaces = library(DISTRIBUTION, "gymnasium.spaces")
    space = env.action_space
    if isinstance(space, spaces.Text):
        return answer
    if isinstance(space, spaces.Discrete):
        found = re.search(r"-?\d+", answer)
        action = int(found[0]) if found else int(space.start)
        return action if space.contains(action) else int(space.start)
    raise EnvironmentFailedError(
        f"the environment's actions are {space}, and no text or number.", next_step="Give act=, text to action."
    )


def _number(reward: Any) -> float:
    if isinstance(reward, str | list | tuple | None.__class__):
        raise EnvironmentFailedError(f"the environment gave the reward {reward!r:.100} for a turn, and no number.")
    return float(reward)
