"""A policy in the hands of an algorithm of one's own: sample, forward_backward, optim_step, save and publish."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from lightstream.schemas.errors import SettingsError, TrainingError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.records import ResourcesRecord, Trajectory
from lightstream.schemas.types import EnqueueRolloutRequest, RolloutConfig

from ...engines.verl import VerlConfig
from ...engines.verl.config import GAP_MEASURES
from ...loop.options import GAP_ADVICE
from ...loop.policy import begin, latest, own_policy, policy_resources
from ...loop.protocols import NothingLearned
from ...loop.steps import Steps
from ...rollouts.batch import BatchRows, build_arrays, weigh_rows
from ...rollouts.rollouts import RETRY_WHAT_IS_LOST
from ...run.checkpoint import existing_folder
from ...run.data_sets import as_tasks
from ...run.identity import check_model, identity_of_model
from ...run.run import Run
from ...run.tasks import Dataset, TasksOfStep, step_group_id, step_requests, task_of, tasks_of_step
from ...servers.following import FollowingServers, check_model_server
from .step import Learned, Step

if TYPE_CHECKING:
    from ...engines.verl.primitives import PrimitiveEngine

Advantages: TypeAlias = "float | Iterable[float]"
"""Of a trajectory: one number, or one for each of its triplets."""

STATE_FOLDER = "state"
"""Within the folder of a step's weights: what training goes on from. Model servers read every file beside it."""

_TAKEN = """
    learning_rate weight_decay gradient_norm_max clip_ratio_low clip_ratio_high dual_clip logprob_gap_max
    loss_normalisation entropy_coefficient
    lora_rank lora_alpha lora_target_modules tokens_per_micro_batch device dtype threads gradient_checkpointing warm_up
    prompt_tokens_max response_tokens_max overlong resource_name served_model temperature sampling_parameters
    keep_checkpoints
"""
TAKEN = tuple(_TAKEN.split())
"""Options of VERL's that mean something here; the others are about a loop, a schedule or a second model."""

T = TypeVar("T")


class LogprobGapError(TrainingError):
    """Actor and model server are further apart than ``logprob_gap_max``; the gradients so far are forgotten."""


class _Call(Protocol):
    """Runs something in the thread in which the model lives."""

    def __call__(self, function: Callable[[], T], /) -> Awaitable[T]: ...


@dataclass(frozen=True, slots=True)
class _Asked:
    """Rollouts that :meth:`Policy.sample` asked for."""

    dataset: Dataset
    tasks: int
    rollouts_per_task: int


@dataclass(slots=True)
class _Opened:
    """A policy whose run is consumed."""

    steps: Steps
    servers: FollowingServers
    call: _Call
    store: LightningStore
    engine: PrimitiveEngine | None = None
    step: Step | None = None
    computed: int = 0

    @property
    def run(self) -> Run:
        """The run that is consumed."""
        return self.steps.run


class Policy:
    """A model that a loop over :func:`trajectories` trains: ``trajectories(run_id, policy=policy)``.

    The loop loads it, publishes version 0 of a new run, and commits what a step's body made of it together with the
    step. After a restart it has the weights and the optimiser of the last committed step. The model is in this process;
    its rollouts are sampled by the servers that follow the run (``lightstream up --policy``, ``lightstream vllm``).

    Args:
        model: folder (or name) of the initial model, with its tokenizer.
        seed: of everything random: the warm-up, the order of tasks, and each call that has no seed of its own.
        rollout_config: deadlines and retries of the rollouts.
        store: where rollouts are enqueued; by default the one on Kafka. Not closed if given.
        versions_back: calls of so many versions before the newest may be trained on, too: the ratio to their recorded
            probabilities corrects for them, within the clipping of the loss.
        options: those of :class:`VerlConfig` about model, arithmetic and sampling: ``learning_rate``, ``lora_rank``,
            ``clip_ratio_high``, ``sampling_parameters``, …

    Raises:
        SettingsError: an option is none of these, or has no such value.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        seed: int = 0,
        rollout_config: RolloutConfig = RETRY_WHAT_IS_LOST,
        store: LightningStore | None = None,
        versions_back: int = 0,
        **options: Any,
    ) -> None:
        others = sorted(options.keys() - set(TAKEN))
        if others:
            raise SettingsError(
                f"Policy has no {', '.join(others)}.", next_step=f"Of VERL's options it takes {', '.join(TAKEN)}."
            )
        self._config = VerlConfig(model=model, steps=1, **options)
        self._seed = seed
        self._rollout_config = rollout_config
        self._store = store
        self._versions_back = versions_back
        self._asked: list[_Asked] = []
        self._opened: _Opened | None = None

    # --- in an algorithm

    def sample(self, dataset: Dataset, *, tasks: int | None = None, rollouts_per_task: int = 8) -> None:
        """Have agents roll out tasks for the next step, by the newest version: once this step is committed.

        Before the loop: for the first step that is not made. The rollouts come as trajectories, in groups of
        ``rollouts_per_task``. Their ids follow from run and step, so that a restart, which asks again, gets the same.

        Args:
            dataset: tasks; the step's are chosen from it as a Trainer chooses them: pass after pass, each in an order
                that follows from the seed.
            tasks: how many; ``None``: as many as there are.
            rollouts_per_task: the size of a group.

        Raises:
            ValueError: there is no task, or no rollout.
        """
        dataset = as_tasks(dataset)
        tasks = len(dataset) if tasks is None else tasks
        if tasks < 1 or rollouts_per_task < 1 or not len(dataset):
            raise ValueError(f"{tasks} tasks of {len(dataset)}, {rollouts_per_task} rollouts each, cannot be sampled")
        self._asked.append(_Asked(dataset, tasks, rollouts_per_task))

    async def forward_backward(
        self, data: Iterable[tuple[Trajectory, Advantages]], *, loss: str = "vanilla"
    ) -> dict[str, float]:
        """Compute the loss of some trajectories, and add its gradient to the gradients that :meth:`optim_step` applies.

        Calls that cannot be trained on are left out, and counted in the ledger: those that were too long or without
        log-probabilities, and all that are not this policy's own (another model's or run's, an older version's, those
        at another temperature).

        Args:
            data: trajectories of this step, each with its advantage, or with one for each of its triplets.
            loss: verl's name of the objective: ``vanilla`` (PPO's clipped ratio), ``gspo``, ``cispo``, ``gpg``,
                ``dppo_tv``, ``dppo_kl``.

        Returns:
            ``actor/pg_loss``, ``actor/entropy``, ``actor/ppo_kl``, …, ``batch/rows``, ``batch/tokens``; before the
            step's first update, ``logprob_diff_max`` too. Without an advantage other than 0, the numbers of rows alone.

        Raises:
            LogprobGapError: actor and model server are further apart than ``logprob_gap_max``: the gradients of the
                step are forgotten, and nothing of it is to be committed.
            TrainingError: no loop consumes the policy's run now.
            SettingsError: there is no such loss.
            ValueError: advantages are not finite, or not as many as triplets.
        """
        opened, step = self._in_step()
        learned = _of(step)
        options = self._config
        rows = self._weighed(data)
        learned.triplets_used |= rows.triplets_used
        learned.not_trained |= rows.not_trained
        if not rows.rows:
            return {"batch/rows": 0.0, "batch/tokens": 0.0}
        opened.computed += 1
        arrays, engine = build_arrays(rows), _engine_of(opened)
        try:
            metrics = await opened.call(
                partial(
                    engine.forward_backward,
                    arrays,
                    loss=loss,
                    policy_version=None if learned.changed else _served_as_loaded(opened.run),
                    seed=(self._seed, step.number, opened.computed),
                    gap_max=options.gap_max,
                )
            )
        except NothingLearned as outcome:
            opened.computed -= 1
            raise LogprobGapError(
                f"step {step.number} was not learned from: {outcome}.", next_step=GAP_ADVICE
            ) from outcome
        return metrics | {"batch/rows": float(len(arrays)), "batch/tokens": float(arrays.tokens)}

    async def gaps(self, data: Sequence[tuple[Trajectory, float]]) -> list[float]:
        """How far actor and model server are apart on each trajectory, by itself; NaN where that cannot be told.

        Call it before the step's first update, as :meth:`forward_backward` compares no later. Gradients so far are
        forgotten. Each trajectory takes a pass of the model.

        Returns:
            Differences of log-probabilities, as ``logprob_gap_max`` bounds them.

        Raises:
            TrainingError: no loop consumes the policy's run now.
        """
        opened, step = self._in_step()
        engine, version = _engine_of(opened), _served_as_loaded(opened.run)
        found: list[float] = []
        for one in data:
            rows = self._weighed([one])
            measured: dict[str, float] = {}
            if rows.rows:
                measured = await opened.call(
                    partial(
                        engine.forward_backward,
                        build_arrays(rows),
                        loss="vanilla",
                        policy_version=version,
                        seed=(self._seed, step.number, 0),
                    )
                )
            found.append(measured.get(GAP_MEASURES[self._config.dtype], math.nan))
        await opened.call(engine.forget_gradients)
        return found

    async def optim_step(self, *, learning_rate: float | None = None) -> dict[str, float]:
        """One step of AdamW with the gradients so far, which are forgotten; without any, nothing changes.

        Args:
            learning_rate: ``None``: the policy's.

        Returns:
            ``grad_norm``, before it was bounded, and ``lr``. Where the norm is not finite, nothing changes, and the
            loop's console says so.

        Raises:
            TrainingError: no loop consumes the policy's run now, or this step has published the weights already.
        """
        opened, step = self._in_step()
        if step.published is not None:
            raise TrainingError(
                f"step {step.number} has published its weights already.", next_step="Publish them last."
            )
        engine = _engine_of(opened)
        changes = engine.has_gradients
        metrics = await opened.call(partial(engine.optim_step, learning_rate=learning_rate))
        learned = _of(step)
        if changes and math.isfinite(metrics["grad_norm"]):
            learned.changed, learned.checkpoint = True, None
        elif changes:
            learned.cause = f"the gradient is not finite ({metrics['grad_norm']})"
            opened.run.progress.say(f"Step {step.number} was not learned from: {learned.cause}. Are rewards huge?")
        return metrics

    async def save(self) -> Path:
        """Write weights, optimiser and random state; a step that changed the weights does so when it is committed.

        Returns:
            The folder, all of which is on the disk: a model as ``from_pretrained`` takes it, and ``state`` within it.
            It is kept while its step is one of the last ``keep_checkpoints``.

        Raises:
            TrainingError: no loop consumes the policy's run now, or the disk is full.
        """
        opened, step = self._in_step()
        learned = _of(step)
        if learned.checkpoint is None:
            learned.checkpoint = await opened.call(partial(self._write, opened, step.number))
        return learned.checkpoint

    async def publish(self) -> ResourcesRecord:
        """Save, and make the weights the run's next version: servers load it, and rollouts use it, once the step is
        committed.

        Raises:
            TrainingError: as :meth:`save`.
        """
        opened, step = self._in_step()
        if step.published is None:
            folder, version = await self.save(), latest(opened.run).version + 1
            record = policy_resources(self._config, opened.steps, opened.servers, version, folder)
            step.published = record
        return step.published

    @property
    def gap_max(self) -> float:
        """``logprob_gap_max``, or its default."""
        return self._config.gap_max

    # --- called by the loop

    @property
    def seed(self) -> int:
        """Of everything random."""
        return self._seed

    def made_with(self) -> dict[str, str]:
        """Everything that a run is made with, and cannot go on without."""
        return {"model": identity_of_model(self._config.model), "lora_rank": str(self._config.lora_rank)}

    async def open(self, steps: Steps, call: _Call) -> None:
        """Have a first version published.

        Raises:
            ServiceUnavailableError: nobody would answer the agents' calls.
            TrainingError: there is no such model, or the run was begun without a policy.
        """
        if self._opened is not None:
            raise TrainingError("this policy is trained by another loop.", next_step="Make one for each loop.")
        run = steps.run
        servers = FollowingServers(run.settings, run.progress)
        await call(partial(self._begin, steps, servers))
        store = self._store
        if store is None:
            from lightstream.store_views.stores import KafkaLightningStore

            store = KafkaLightningStore(run.settings)
            await store.start()
        self._opened = _Opened(steps, servers, call, store)

    async def roll_out(self) -> None:
        """Ask for the rollouts of the next step, once its version is served, and load the model meanwhile."""
        opened, requests = self._get_opened(), self._asked
        run, self._asked = opened.run, []
        step = run.last_step + 1
        if requests:
            await opened.call(partial(opened.servers.load, latest(run)))
            await opened.store.enqueue_many_rollouts(self._requests(run, requests, step))
        if opened.engine is None:
            opened.engine = await opened.call(partial(self._load, run))

    def enter(self, step: Step) -> None:
        """The body of a step begins."""
        opened = self._get_opened()
        step.learned = Learned()
        opened.step, opened.computed = step, 0

    async def leave(self) -> None:
        """The body of a step is left, and the step is to be committed.

        Raises:
            TrainingError: there are gradients that were not applied; or the disk is full. Nothing is committed.
        """
        opened, step = self._in_step()
        if _engine_of(opened).has_gradients:
            raise TrainingError(
                f"step {step.number} leaves gradients that no optim_step applied: a restart would lose them.",
                next_step="Call policy.optim_step() before the body ends.",
            )
        if _of(step).changed:
            await self.save()
        opened.step = None

    def keep(self) -> None:
        """Delete weights that nobody needs any more, and weights of steps that were never committed."""
        steps = self._get_opened().steps
        served = latest(steps.run).checkpoint_url
        of_served = [step for step, url in steps.run.history.checkpoints.items() if url == served]
        steps.keep_checkpoints(self._config.keep_checkpoints, besides=(0, *of_served))

    async def close(self) -> None:
        """The loop is over."""
        opened, self._opened = self._opened, None
        self._asked.clear()  # a step's that was not committed
        if opened is not None and self._store is None:
            await opened.store.close()

    # --- in the model's thread

    def _begin(self, steps: Steps, servers: FollowingServers) -> None:
        from ...engines.verl.initial import write_initial_model

        run = steps.run
        check_model_server(run.settings)
        check_model(self._config.model)
        begin(self._config, steps, servers, partial(write_initial_model, self._config, seed=self._seed))
        if 0 not in run.history.checkpoints:
            raise TrainingError(
                f"run {run.run_id!r} was begun without a policy.", next_step="Give the new run a name of its own."
            )

    def _load(self, run: Run) -> PrimitiveEngine:
        from ...engines.verl.primitives import PrimitiveEngine

        self.keep()
        first, newest = (
            existing_folder(run.settings, run.history.checkpoints[step], run.run_id)
            for step in (min(run.history.checkpoints), max(run.history.checkpoints))
        )
        state = newest / STATE_FOLDER
        engine = PrimitiveEngine(self._config, state if state.is_dir() else newest, first=first)
        engine.saved_in(newest)
        return engine

    def _write(self, opened: _Opened, step: int) -> Path:
        engine = _engine_of(opened)

        def fill(folder: Path) -> None:
            engine.save_weights(folder)
            (folder / STATE_FOLDER).mkdir()
            engine.save(folder / STATE_FOLDER)

        folder = opened.run.checkpoints.write(step, fill)
        engine.saved_in(folder)
        return folder

    def _weighed(self, data: Iterable[tuple[Trajectory, Advantages]]) -> BatchRows:
        opened, options = self._get_opened(), self._config
        return weigh_rows(
            data,
            own=replace(own_policy(options, opened.run, latest(opened.run).version), versions_back=self._versions_back),
            prompt_tokens_max=options.prompt_tokens_max,
            response_tokens_max=options.response_tokens_max,
            overlong=options.overlong,
            images=_engine_of(opened).images,
        )

    # --- what there is

    def _requests(self, run: Run, asked: Sequence[_Asked], step: int) -> list[EnqueueRolloutRequest]:
        requests: list[EnqueueRolloutRequest] = []
        groups = 0
        for wish in asked:
            wanted = TasksOfStep(run_id=run.run_id, seed=self._seed, step=step, count=wish.tasks, known_step=step - 1)
            for index in tasks_of_step(wish.dataset, wanted):
                requests += step_requests(
                    step_group_id(run.run_id, step, groups),
                    task_of(wish.dataset, index),
                    count=wish.rollouts_per_task,
                    run_id=run.run_id,
                    mode="train",
                    resources_id=latest(run).resources_id,
                    config=self._rollout_config,
                    assembly=None,
                )
                groups += 1
        return requests

    def _get_opened(self) -> _Opened:
        if self._opened is None:
            raise TrainingError(
                "no loop trains this policy now.",
                next_step="Call it in the body of `async for step in trajectories(run_id, policy=policy)`.",
            )
        return self._opened

    def _in_step(self) -> tuple[_Opened, Step]:
        opened = self._get_opened()
        if opened.step is None:
            raise TrainingError(
                "this policy is between two steps.",
                next_step="Call it in the body of `async for step in trajectories(run_id, policy=policy)`.",
            )
        return opened, opened.step


def _served_as_loaded(run: Run) -> int | None:
    """The newest version, if training goes on from its weights; ``None``: they changed since without a new version."""
    newest, checkpoints = latest(run), run.history.checkpoints
    return newest.version if checkpoints[max(checkpoints)] == newest.checkpoint_url else None


def _engine_of(opened: _Opened) -> PrimitiveEngine:
    assert opened.engine is not None  # noqa: S101  # loaded before the first step
    return opened.engine


def _of(step: Step) -> Learned:
    assert step.learned is not None  # noqa: S101  # made when its body was entered
    return step.learned
