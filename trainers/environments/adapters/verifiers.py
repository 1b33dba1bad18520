"""Environments of verifiers (its v1): their agent loop runs against our proxy, and their rubric rewards."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from itertools import islice
from typing import Any

from lightstream.producers import LitAgent
from lightstream.schemas.errors import SettingsError
from lightstream.schemas.types import LLM, AttemptedRollout, NamedResources, ProxyLLM, Rollout

from ..environment import Environment, EnvironmentFailedError
from ..sets import Task, TaskSet
from .library import library

DISTRIBUTION = "verifiers"
TASKS_MAX = 1000
"""Where no number is asked for: a task set may be endless."""


def verifiers_environment(
    name: str, *, tasks: int | None = None, validation_tasks: int = 0, env: Mapping[str, Any] | None = None
) -> Environment:
    """An environment of verifiers, by the id of its task set.

    Rollouts run in the Runner's process; a harness that is a program runs beside it (``subprocess``).

    Args:
        name: the id, as ``vf-eval`` takes it: the module that exports the task set.
        tasks: how many of its tasks, the first ones; by default all, at most 1000.
        validation_tasks: how many more of them are for validation.
        env: the library's configuration of the environment: ``{"taskset": {…}, "agent": {"max_turns": 4}}``.

    Raises:
        SettingsError: the library or the environment is not there, refuses the configuration, or has fewer tasks.
    """
    loaders = library(DISTRIBUTION, "verifiers.v1.utils.loaders")
    try:
        config = _config(loaders, name, env or {})
        taskset = loaders.load_environment(loaders.resolve_env_config(config)).taskset
        found = list(islice(taskset, (TASKS_MAX if tasks is None else tasks) + validation_tasks))
    except Exception as error:  # another's code, and its configuration
        raise SettingsError(
            f"verifiers cannot load {name!r}: {type(error).__name__}: {error}.",
            next_step=f"Try it alone: vf-eval {name} -n 1.",
        ) from error
    train_tasks = len(found) - validation_tasks
    if train_tasks < (1 if tasks is None else tasks):
        raise SettingsError(
            f"verifiers has {len(found)} tasks of {name!r}, and {1 if tasks is None else tasks} and "
            f"{validation_tasks} for validation are wanted.",
            next_step="Set --env-option tasks=… and validation_tasks=… to fewer.",
        )
    return Environment(
        TaskSet(
            f"verifiers:{name}",
            [
                Task(
                    str(number),
                    task.data.model_dump(mode="json"),
                    split="train" if number < train_tasks else "validation",
                )
                for number, task in enumerate(found)
            ],
        ),
        Episodes(name, config),
        library=DISTRIBUTION,
    )


class Episodes(LitAgent[Any]):
    """Runs one episode of the environment for each attempt; its reward is that of the library.

    Args:
        name: for messages.
        config: of the environment, plain values.
    """

    def __init__(self, name: str, config: Mapping[str, Any]) -> None:
        super().__init__()
        self._name = name
        self._config = config

    async def rollout_async(self, task: Any, resources: NamedResources, rollout: Rollout) -> dict[str, float]:
        """Play an episode.

        Raises:
            EnvironmentFailedError: it failed, had several agents, or was not rewarded.
        """
        vf = library(DISTRIBUTION, "verifiers.v1")
        loaders = library(DISTRIBUTION, "verifiers.v1.utils.loaders")
        environment = loaders.load_environment(loaders.resolve_env_config(dict(self._config)))
        kind = type(environment.taskset).task_type()
        theirs = kind(kind.data_type().model_validate(task), environment.taskset.config.task)
        llm = _model(resources, rollout)
        # Its clients read a key from a variable alone; those with API_KEY in the name are not passed to programs.
        attempt = rollout.attempt.attempt_id if isinstance(rollout, AttemptedRollout) else rollout.rollout_id
        variable = "LIGHTSTREAM_API_KEY_" + re.sub(r"\W", "_", attempt)
        context = vf.ModelContext(
            client=vf.EvalClientConfig(base_url=llm.endpoint, api_key_var=variable),
            model=llm.model,
            sampling=library(DISTRIBUTION, "verifiers.v1.types").SamplingConfig(**llm.sampling_parameters),
        )
        os.environ[variable] = llm.api_key or "none"
        try:
            async with environment.serving():
                (slot,) = environment.slots(theirs, 1)
                episode = await environment.run_slot(slot, context)
        finally:
            os.environ.pop(variable, None)
        return self._reward_of(episode)

    def _reward_of(self, episode: Any) -> dict[str, float]:
        errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
        if not episode.ok:
            last = errors[-1] if errors else None
            reason = f"{last.type}: {last.message}" if last else "it says no reason"
            raise EnvironmentFailedError(f"the episode of {self._name!r} failed: {reason}.")
        if len(episode.traces) != 1:
            raise EnvironmentFailedError(
                f"the episode of {self._name!r} has {len(episode.traces)} agents, and one is trained.",
                next_step="Use an environment of one agent.",
            )
        (trace,) = episode.traces
        missing = [name for name, reward in trace.rewards.items() if reward is None]
        if missing or not trace.rewards:
            raise EnvironmentFailedError(
                f"{self._name!r} gave no reward{' ' + ', '.join(missing) if missing else ''}.",
                next_step="Its task needs a method with @vf.reward.",
            )
        parts = (
            {f"{name}_part": reward.value for name, reward in trace.rewards.items()} if len(trace.rewards) > 1 else {}
        )
        return {"reward": trace.reward, **parts}


def _config(loaders: Any, name: str, env: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with the id, and with agents that run here, as the library's default is its own cloud."""
    taskset: Mapping[str, Any] = env.get("taskset") or {}
    made: dict[str, Any] = {**env, "taskset": {**taskset, "id": name}}
    agents = library(DISTRIBUTION, "verifiers.v1.configs.agent")
    for role, field in loaders.env_config_type(name, env.get("id") or "").model_fields.items():
        if isinstance(field.default, agents.AgentConfig):
            made[role] = {"runtime": {"type": "subprocess"}, **(env.get(role) or {})}
    return made


def _model(resources: NamedResources, rollout: Rollout) -> LLM:
    for resource in resources.values():
        if isinstance(resource, ProxyLLM) and isinstance(rollout, AttemptedRollout):
            url = resource.get_base_url(rollout.rollout_id, rollout.attempt.attempt_id)
            return LLM(
                endpoint=url,
                model=resource.model,
                api_key=resource.api_key,
                sampling_parameters=dict(resource.sampling_parameters),
            )
        if isinstance(resource, LLM):
            return resource
    raise EnvironmentFailedError(f"the rollout has no model among its resources: {', '.join(resources) or 'none'}.")
