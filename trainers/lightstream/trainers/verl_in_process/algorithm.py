"""The VERL algorithm: rollouts, batch, update, checkpoint, commit; again."""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from lightstream.runtime.services import discover
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import TrainingError
from lightstream.schemas.records import ResourcesRecord, StepOutcome
from lightstream.schemas.types import NamedResources, ProxyLLM
from lightstream.stream_processors.core.segments import NO_VERSION

from ..algorithm import Algorithm, AlgorithmContext, CollectError
from ..batch import BatchArrays, BatchRows, build_arrays, reasons_of, select_rows
from ..groups import Group
from ..run_identity import check_model, identity_of_model
from .config import VerlConfig
from .engine import VerlEngine
from .initial import write_initial_model
from .served import check_model_server, wait_until_served

__all__ = ["VERL"]

logger = logging.getLogger(__name__)

LOGPROB_DIFF_EXPECTED_MAX = 1e-3
"""Between float32 on both sides about 1e-6 is seen; more than this means that the two do not run the same model."""


@dataclass(frozen=True, kw_only=True)
class VERL(VerlConfig, Algorithm):
    """verl's GRPO in this process. See :class:`VerlConfig` for the options.

    Each step: roll out, take complete groups, update, write the checkpoint, commit step, resources and offsets
    together. Rollouts are pinned to the version they were enqueued with. A step of which nothing can be trained on is
    discarded: it is committed as such, and made again with new rollouts. One whose groups have no signal counts, and
    changes nothing.
    """

    def check(self, settings: Settings) -> None:
        check_model(self.model)
        check_model_server(settings)

    def made_with(self) -> dict[str, str]:
        return {
            "algorithm": f"VERL {self.advantage}",
            "model": identity_of_model(self.model),
            "tasks_per_step": str(self.tasks_per_step),
            "rollouts_per_task": str(self.rollouts_per_task),
        }

    def run(self, context: AlgorithmContext) -> None:
        if context.resources is None:
            context.progress.say(f"Loading {self.model} …")
            _publish_first(self, context)
        if _is_done(self, context):
            _measure_last(self, context)
            context.progress.say(f"Nothing left to do: {_how_far(self, context)}.")
            return
        wait_until_served(context.settings, _latest(context).model or "", context.progress)
        context.keep_checkpoints(self.keep_checkpoints)  # and whatever a crash left behind
        _Loop(self, context).run()
        _measure_last(self, context)


class _Loop:
    """The steps of one ``run``. What it holds follows from the history, but for discarded tries in a row."""

    def __init__(self, verl: VERL, context: AlgorithmContext) -> None:
        self._verl = verl
        self._context = context
        self._engine: VerlEngine | None = None
        self._waiting: list[str] = []
        # With steps ahead, earlier steps may have left slow groups behind: all that are not consumed are asked for.
        self._next_to_enqueue = 1 if verl.steps_ahead else context.last_step + 1
        self._discarded_in_a_row = 0

    def run(self) -> None:
        verl, context = self._verl, self._context
        while not _is_done(verl, context):
            step, started = context.last_step + 1, context.now()
            self._enqueue(step)
            if self._engine is None:  # loading takes seconds, in which the first rollouts run
                self._engine = VerlEngine(verl, _checkpoint(_latest(context)))
            served = _latest(context).model or ""
            metrics = {"seconds/swap": wait_until_served(context.settings, served, context.progress)}
            if self._validates_before(step):
                metrics |= _validation(verl, context)
            groups = self._collect(metrics)
            self._make(self._engine, step, started, groups, metrics)
            context.keep_checkpoints(verl.keep_checkpoints)

    def _validates_before(self, step: int) -> bool:
        """True if the policy is to be validated now: its rollouts are asked for once, and come once."""
        history, every = self._context.history, self._verl.validate_every
        is_due = every > 0 and (step - 1) % every == 0
        return is_due and not history.discarded.get(step) and not history.measured

    def _enqueue(self, step: int) -> None:
        """Ask for the rollouts of this step and of those ahead, and again for those of a discarded step."""
        verl, context = self._verl, self._context
        again = [step] if self._discarded_in_a_row else []
        ahead = range(self._next_to_enqueue, min(step + verl.steps_ahead, verl.steps) + 1)
        for wave in [*again, *ahead]:
            self._waiting += context.enqueue_step(
                wave,
                tasks=verl.tasks_per_step,
                rollouts_per_task=verl.rollouts_per_task,
                resources_id=_latest(context).resources_id,
            )
        self._next_to_enqueue = max(self._next_to_enqueue, ahead.stop)

    def _collect(self, metrics: dict[str, float]) -> list[Group]:
        mark = time.perf_counter()
        try:
            groups = self._context.collect(self._waiting, self._verl.tasks_per_step)
        except CollectError:  # the step is discarded, and the breaker counts it
            groups = []
        gone = self._context.skipped.union(group.group_id for group in groups)
        self._waiting = [group_id for group_id in self._waiting if group_id not in gone]
        metrics["seconds/collect"] = time.perf_counter() - mark
        return groups

    def _make(
        self, engine: VerlEngine, step: int, started: int, groups: list[Group], metrics: dict[str, float]
    ) -> None:
        """Update on the groups, and commit the step with what came of it."""
        verl, context = self._verl, self._context
        version = _latest(context).version
        rows = select_rows(
            groups,
            scoring=verl.scoring,
            oldest_policy_version=version - verl.steps_ahead,
            prompt_tokens_max=verl.prompt_tokens_max,
            response_tokens_max=verl.response_tokens_max,
            overlong=verl.overlong,
        )
        metrics |= _batch_metrics(groups, rows, version)
        outcome, resources = StepOutcome.DISCARDED, None
        if rows.has_signal or (rows.rows and verl.entropy_coefficient):
            outcome = StepOutcome.UPDATED
            metrics |= self._update(engine, build_arrays(rows), step, version)
            mark = time.perf_counter()
            checkpoint = context.checkpoints.write(step, engine.save)
            engine.saved_in(checkpoint)
            metrics["seconds/checkpoint"] = time.perf_counter() - mark
            resources = _resources(verl, context, version + 1, checkpoint)
        elif rows.rows:
            outcome = StepOutcome.UNCHANGED
        context.commit(
            step,
            groups,
            started_unix_nano=started,
            metrics=metrics,
            resources=resources,
            triplets_used=rows.triplets_used,
            not_trained=rows.not_trained,
            outcome=outcome,
            steps=verl.steps,
        )
        self._discarded_in_a_row = self._discarded_in_a_row + 1 if outcome is StepOutcome.DISCARDED else 0
        if outcome is StepOutcome.DISCARDED:
            self._break_off(step, groups, rows)

    def _update(self, engine: VerlEngine, arrays: BatchArrays, step: int, version: int) -> dict[str, float]:
        mark = time.perf_counter()
        metrics = engine.update(arrays, policy_version=version, seed=(self._context.seed, step))
        seconds = time.perf_counter() - mark
        metrics |= {
            "batch/rows": float(len(arrays)),
            "batch/tokens": float(arrays.tokens),
            "batch/response_tokens": float(arrays.response_mask.sum()),
            "seconds/update": seconds,
            "tokens_per_second/update": metrics["tokens/computed"] / seconds,
        }
        if metrics["logprob_diff_max"] > LOGPROB_DIFF_EXPECTED_MAX:
            self._context.progress.say(
                f"Step {step}: the log-probabilities of actor and model server differ by up to "
                f"{metrics['logprob_diff_max']:.2g} (expected: below {LOGPROB_DIFF_EXPECTED_MAX:g}). Do both run the "
                "same weights at the same temperature?"
            )
        return metrics

    def _break_off(self, step: int, groups: list[Group], rows: BatchRows) -> None:
        """End the run where going on is pointless.

        Raises:
            TrainingError: too many tries in a row had nothing to train on; says what was most often the matter.
        """
        attempts = [t for group in groups for t in group.trajectories]
        all_failed = bool(attempts) and all(t.rollout_status.value != "succeeded" for t in attempts)
        if not all_failed and self._discarded_in_a_row < self._verl.steps_without_signal_max:
            return
        errors = self._context.progress.errors.most_common(1)
        if all_failed:
            what = f"all {len(attempts)} rollouts of step {step} failed"
        else:
            what = f"nothing could be trained on in {self._discarded_in_a_row} tries of step {step}"
        if not groups:
            why = "no group was complete in time"
        elif errors:
            why = f"most often: {errors[0][0]}"
        else:
            why = f"reasons: {reasons_of(rows.excluded)}"
        raise TrainingError(
            f"{what}; {why}.",
            next_step="Nothing is lost: after the fix, the same command goes on with this step. "
            f"{_advice(rows, failed=all_failed, came=bool(groups))}",
        )


def _is_done(verl: VERL, context: AlgorithmContext) -> bool:
    return context.last_step >= verl.steps or _reached_target(verl, context)


def _reached_target(verl: VERL, context: AlgorithmContext) -> bool:
    last = context.history.mean_rewards[-verl.reward_target_steps :]
    return (
        verl.reward_target is not None
        and len(last) == verl.reward_target_steps
        and fmean(last) >= verl.reward_target  # false for NaN
    )


def _how_far(verl: VERL, context: AlgorithmContext) -> str:
    made = f"{context.last_step} of {verl.steps} steps of run {context.run_id!r} are made"
    if context.last_step < verl.steps:
        made += f", and the last {verl.reward_target_steps} hold a mean reward of {verl.reward_target}"
    return made


def _measure_last(verl: VERL, context: AlgorithmContext) -> None:
    """Validate the policy of the last step, once."""
    if not verl.validate_every or context.history.measured:
        return
    started = context.now()
    metrics = _validation(verl, context)
    if metrics:
        context.commit(
            context.last_step,
            [],
            started_unix_nano=started,
            metrics=metrics,
            outcome=StepOutcome.MEASURED,
            steps=verl.steps,
        )


def _validation(verl: VERL, context: AlgorithmContext) -> dict[str, float]:
    """Rewards on the validation tasks of the latest policy; a rollout without a reward counts as 0, and a task of which
    a rollout never ended is left out."""
    mark = time.perf_counter()
    groups = context.validate(context.last_step, samples=verl.validation_samples)
    skipped = len(context.val_dataset or ()) - len(groups)
    metrics = {"validation/groups_skipped": float(skipped)} if skipped else {}
    if not groups:
        return metrics
    rewards = [[_finite(t.reward) for t in group.trajectories] for group in groups]
    return metrics | {
        "validation/reward_mean": fmean(reward for group in rewards for reward in group),
        "validation/reward_best": fmean(max(group) for group in rewards),
        f"validation/pass@{verl.validation_samples}": fmean(max(group) >= 1.0 for group in rewards),
        "validation/tasks": float(len(groups)),
        "validation/samples": float(verl.validation_samples),
        "seconds/validation": time.perf_counter() - mark,
    }


def _publish_first(verl: VERL, context: AlgorithmContext) -> None:
    folder = context.checkpoints.write(0, lambda path: write_initial_model(verl, path, seed=context.seed))
    context.publish_resources(_resources(verl, context, 0, folder))


def _resources(verl: VERL, context: AlgorithmContext, version: int, checkpoint: Path) -> ResourcesRecord:
    model = f"{verl.served_model}@{version}"
    token = context.settings.proxy_token
    resources: NamedResources = {
        verl.resource_name: ProxyLLM(
            endpoint=f"{_proxy_url(context.settings)}/seed/{context.seed}/v1",
            model=model,
            api_key=None if token is None else token.get_secret_value(),
            sampling_parameters={"temperature": verl.temperature} | dict(verl.sampling_parameters),
            validation_sampling_parameters=None
            if verl.validation_sampling_parameters is None
            else dict(verl.validation_sampling_parameters),
        )
    }
    return context.resources_record(version, resources, model=model, checkpoint=checkpoint)


def _advice(rows: BatchRows, *, failed: bool, came: bool) -> str:
    if not came:
        return "`lightstream status` shows whether the worker and the Runners are running."
    if failed:
        return "`lightstream explain ROLLOUT_ID` shows one of them."
    commonest = rows.excluded.most_common(1)
    reason = commonest[0][0].value if commonest else ""
    return {
        "no_reward": "Does the agent return a reward? VERL(reward_missing='fill') gives one to those without.",
        "not_comparable": "Advantages compare the rollouts of a task: set rollouts_per_task to at least 2.",
        "no_calls": "Do the agent's calls go through the proxy, at the base URL of its `llm` resource?",
        "no_logprobs": "The model server must return log-probabilities of its tokens.",
        "unknown_version": "The model server must say which version sampled: `<model>@<version>`.",
        "too_long": "Raise response_tokens_max or prompt_tokens_max, or set overlong='truncate'.",
    }.get(reason, "`lightstream sql 'SELECT * FROM why_not_trained'` shows each rollout.")


def _finite(reward: float | None) -> float:
    return reward if reward is not None and math.isfinite(reward) else 0.0


def _latest(context: AlgorithmContext) -> ResourcesRecord:
    if context.resources is None:
        raise TrainingError(f"run {context.run_id!r} has no resources although they were published.")
    return context.resources


def _checkpoint(resources: ResourcesRecord) -> Path:
    """The folder of a version's weights.

    Raises:
        TrainingError: it is missing.
    """
    folder = Path(resources.checkpoint_url or "")
    if resources.checkpoint_url is None or not folder.is_dir():
        raise TrainingError(
            f"the checkpoint {resources.checkpoint_url} of {resources.resources_id!r} is gone.",
            next_step="Restore the folder, or start a new run with another run_id and trainer_id.",
        )
    return folder


def _proxy_url(settings: Settings) -> str:
    return (settings.proxy_url or discover(settings, "proxy").address).rstrip("/")


def _batch_metrics(groups: list[Group], rows: BatchRows, version: int) -> dict[str, float]:
    metrics: dict[str, float] = {
        "batch/rows": float(len(rows.rows)),
        "groups/without_signal": float(rows.groups_without_signal),
    }
    metrics |= {f"batch/excluded_{reason.value}": float(count) for reason, count in rows.excluded.items()}
    calls = [triplet for group in groups for t in group.trajectories for triplet in t.triplets]
    lengths = [len(triplet.response_mask) for triplet in calls]
    turns = [len(t.triplets) for group in groups for t in group.trajectories]
    if lengths:
        metrics |= {
            "response_tokens/mean": fmean(lengths),
            "response_tokens/max": float(max(lengths)),
            "turns/mean": fmean(turns),
            "turns/max": float(max(turns)),
        }
    stale = [version - t.policy_version for t in calls if t.policy_version not in (None, NO_VERSION)]
    if stale:
        ages, counts = np.unique(np.asarray(stale), return_counts=True)
        metrics |= {f"staleness/{age}": float(count) for age, count in zip(ages, counts, strict=True)}
        metrics["batch/staleness_max"] = float(ages.max())
    return metrics | _rewards_by_source(groups)


def _rewards_by_source(groups: list[Group]) -> dict[str, float]:
    """Mean reward of each data source, where tasks are objects that name theirs (``data_source`` or ``dataset``)."""
    import json

    rewards: dict[str, list[float]] = {}
    for group in groups:
        for trajectory in group.trajectories:
            task: Any = json.loads(trajectory.input_json) if trajectory.input_json else None
            source = (task.get("data_source") or task.get("dataset")) if isinstance(task, dict) else None
            if isinstance(source, str) and trajectory.reward is not None and math.isfinite(trajectory.reward):
                rewards.setdefault(source, []).append(trajectory.reward)
    return {f"reward/mean/{source}": fmean(values) for source, values in sorted(rewards.items())}
