"""An environment: tasks, an agent, and a verifier whose verdict is the reward."""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeAlias, cast

from lightstream.producers import LitAgent, rollout
from lightstream.producers.runner.daemon_thread import call_in_thread
from lightstream.schemas.errors import LightstreamError, TrainingError
from lightstream.schemas.types import NamedResources, Rollout

from .sets import DIGEST_SHOWN, Task, TaskSet, task_from

Verdict: TypeAlias = float | Mapping[str, float]
"""The reward, or several by name. ``primary`` trains, else ``reward``, else the first one."""

Verifier: TypeAlias = Callable[[Task, Any], Verdict | Awaitable[Verdict]]

ONE_REWARD = (
    "Return one finite number, or an object of them: `primary` trains, else `reward`, else the first. Rewards of "
    "single turns: call `emit_reward(…, link=…)` in the agent."
)


class EnvironmentFailedError(LightstreamError):
    """An environment could not run a task, or gave no reward. The attempt fails with this as its reason."""


class Environment(LitAgent[Any]):
    """An agent on a set of tasks, with a verifier; pass it to ``Trainer.fit`` as the agent, and its tasks.

    ``trainer.fit(environment, environment.train, environment.validation)``

    Args:
        task_set: the tasks. Runners are not sent them: each rollout has its own.
        agent: a ``LitAgent``, or a function as of :func:`lightstream.producers.rollout`. It returns its answer, a JSON
            value, for the verifier; without a verifier, the reward.
        verifier: makes the reward of a task and an answer; synchronous (run in a thread) or not.
        library: the distribution whose code rewards, such as ``reasoning-gym``. The version that the environment was
            made with must be the Runners' version too.
        trained_agents: as of ``LitAgent``; by default the agent's own.
    """

    def __init__(
        self,
        task_set: TaskSet,
        agent: LitAgent[Any] | Callable[..., Any],
        verifier: Verifier | None = None,
        *,
        library: str = "",
        trained_agents: str | None = None,
    ) -> None:
        self._agent = agent if isinstance(agent, LitAgent) else rollout(agent)
        super().__init__(trained_agents=self._agent.trained_agents if trained_agents is None else trained_agents)
        self.name = task_set.name
        self.digest = task_set.digest
        self._tasks: TaskSet | None = task_set
        self._verifier = verifier
        self._library = library
        self._version = version(library) if library else ""

    @property
    def task_set(self) -> TaskSet:
        """All tasks, where the environment was made; Runners have none of them."""
        if self._tasks is None:
            raise EnvironmentFailedError(f"a Runner does not have the tasks of {self.name!r}.")
        return self._tasks

    @property
    def train(self) -> TaskSet:
        """The split ``train``; of a set without splits, all tasks.

        Raises:
            TrainingError: the set has splits, and none is ``train``: all tasks would have the held-out ones among them.
        """
        splits = self.task_set.splits
        if splits and "train" not in splits:
            raise TrainingError(
                f"the task set {self.name!r} has no split 'train' to train on; it has {', '.join(splits)}.",
                next_step="Name one `train`, or make new ones: task_set.split_by(train=0.9, validation=0.1).",
            )
        return self.task_set.split("train") if splits else self.task_set

    @property
    def validation(self) -> TaskSet | None:
        """The split ``validation``, ``val`` or ``test``; ``None`` where there is none."""
        name = next((name for name in ("validation", "val", "test") if name in self.task_set.splits), None)
        return None if name is None else self.task_set.split(name)

    def is_async(self) -> bool:
        return True

    def set_runner(self, runner: Any) -> None:
        super().set_runner(runner)
        self._agent.set_runner(runner)

    def set_trainer(self, trainer: Any) -> None:
        super().set_trainer(trainer)
        self._agent.set_trainer(trainer)

    async def rollout_async(self, task: Any, resources: NamedResources, rollout: Rollout) -> Any:
        """Run the agent on a task, and have its answer judged.

        Raises:
            EnvironmentFailedError: the task is of another version of the set, the library is another version, or there
                is no reward.
        """
        self._check_versions(rollout)
        found, _, _ = task_from(task, rollout.metadata)
        answer = await self._answer(task, resources, rollout)
        if self._verifier is None:
            return checked_reward(answer, f"the agent of {self.name!r}")
        verdict = await self._verdict(self._verifier, found, answer)
        return checked_reward(verdict, f"the verifier of {self.name!r}")

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_tasks": None}

    async def _answer(self, task: Any, resources: NamedResources, rollout: Rollout) -> Any:
        training = rollout.mode in (None, "train")
        agent = self._agent
        if agent.is_async():
            method = agent.training_rollout_async if training else agent.validation_rollout_async
            return await method(task, resources, rollout)
        call = agent.training_rollout if training else agent.validation_rollout
        return await in_thread(lambda: call(task, resources, rollout), f"agent of {self.name}")

    async def _verdict(self, verifier: Verifier, task: Task, answer: Any) -> Any:
        if _is_async(verifier):
            made: Any = verifier(task, answer)
        else:
            made = await in_thread(lambda: verifier(task, answer), f"verifier of {self.name}")
        return await made if inspect.isawaitable(made) else made

    def _check_versions(self, rollout: Rollout) -> None:
        _, name, digest = task_from(None, rollout.metadata)
        if digest and (name, digest) != (self.name, self.digest):
            raise EnvironmentFailedError(
                f"the task is of {name} {digest[:DIGEST_SHOWN]}, and this Runner has {self.name} "
                f"{self.digest[:DIGEST_SHOWN]}.",
                next_step="Start the Runner with the task set of the run, or the changed set as a run of another name.",
            )
        if self._library and (found := installed(self._library)) != self._version:
            raise EnvironmentFailedError(
                f"the environment was made with {self._library} {self._version}, and this Runner has {found}.",
                next_step=f"Install {self._library}=={self._version} there.",
            )


async def in_thread(call: Callable[[], Any], name: str) -> Any:
    """Make a blocking call in a thread of its own, as one that hangs would hold a worker of the loop's pool forever."""
    outcome = await call_in_thread(call, name)
    if outcome.error is not None:
        raise outcome.error
    return outcome.result


def checked_reward(value: Any, whose: str) -> Verdict:
    """A reward as it can be trained on.

    Raises:
        EnvironmentFailedError: it is none: nothing, not finite, or one per turn.
    """
    if value is None:
        raise EnvironmentFailedError(f"{whose} gave no reward.", next_step=ONE_REWARD)
    if isinstance(value, list | tuple):
        turns = cast("list[Any]", value)
        raise EnvironmentFailedError(f"{whose} gave {len(turns)} rewards, one per turn.", next_step=ONE_REWARD)
    if isinstance(value, Mapping):
        named: Mapping[Any, Any] = value
        if not named:
            raise EnvironmentFailedError(f"{whose} gave no reward.", next_step=ONE_REWARD)
        return {str(name): _finite(item, f"{whose} gave the reward {name!r}") for name, item in named.items()}
    return _finite(value, f"{whose} gave the reward")


def installed(distribution: str) -> str:
    """The version that is installed; ``none`` without one."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "none"


def _finite(value: Any, what: str) -> float:
    try:
        number = math.nan if isinstance(value, str) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise EnvironmentFailedError(f"{what} {value!r:.100}, which is no finite number.", next_step=ONE_REWARD)
    return number


def _is_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004  # an object whose call is asynchronous
