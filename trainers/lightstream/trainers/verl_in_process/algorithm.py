"""The VERL algorithm: rollouts, batch, update, checkpoint, commit; again."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lightstream.schemas.errors import TrainingError
from lightstream.schemas.records import ResourcesRecord
from lightstream.schemas.services import discover
from lightstream.schemas.settings import Settings
from lightstream.schemas.types import NamedResources, ProxyLLM
from lightstream.stream_processors.core.segments import NO_VERSION

from ..algorithm import Algorithm, AlgorithmContext
from ..batch import BatchArrays, BatchRows, build_arrays, select_rows
from ..groups import Group
from .config import VerlConfig
from .engine import VerlEngine
from .initial import write_initial_model

__all__ = ["VERL"]

logger = logging.getLogger(__name__)

LOGPROB_DIFF_EXPECTED_MAX = 1e-3
"""Between float32 on both sides about 1e-6 is seen; more than this means that the two do not run the same model."""


@dataclass(frozen=True, kw_only=True)
class VERL(VerlConfig, Algorithm):
    """verl's GRPO in this process. See :class:`VerlConfig` for the options.

    Each step: roll out, take complete groups, update, write the checkpoint, commit step, resources and offsets
    together. Rollouts are pinned to the version they were enqueued with.
    """

    def run(self, context: AlgorithmContext) -> None:
        if context.resources is None:
            self._publish_first(context)
        current = _latest(context)
        context.keep_checkpoints(self.keep_checkpoints)  # and whatever a crash left behind
        engine: VerlEngine | None = None
        groups_of_step: dict[int, list[str]] = {}
        # With steps ahead, earlier steps may have left slow groups behind: all that are not consumed are asked for.
        next_to_enqueue = 1 if self.steps_ahead else context.last_step + 1
        for step in range(context.last_step + 1, self.steps + 1):
            started = context.now()
            for wave in range(next_to_enqueue, min(step + self.steps_ahead, self.steps) + 1):
                groups_of_step[wave] = context.enqueue_step(
                    wave,
                    tasks=self.tasks_per_step,
                    rollouts_per_task=self.rollouts_per_task,
                    resources_id=current.resources_id,
                )
                next_to_enqueue = wave + 1
            if engine is None:  # loading takes seconds, in which the first rollouts run
                engine = VerlEngine(self, _checkpoint(current))
            metrics = self._validate(context, step)
            mark = time.perf_counter()
            waiting = [group for wave in sorted(groups_of_step) for group in groups_of_step[wave]]
            groups = context.collect(waiting, min(self.tasks_per_step, len(waiting)))
            taken = {group.group_id for group in groups}
            for ids in groups_of_step.values():
                ids[:] = [group_id for group_id in ids if group_id not in taken]
            metrics["seconds/collect"] = time.perf_counter() - mark
            rows, trained = self._train(engine, groups, step)
            metrics |= trained
            mark = time.perf_counter()
            checkpoint = context.checkpoints.write(step, engine.save)
            engine.saved_in(checkpoint)
            metrics["seconds/checkpoint"] = time.perf_counter() - mark
            current = self._resources(context, step, checkpoint)
            context.commit(
                step,
                groups,
                started_unix_nano=started,
                metrics=metrics,
                resources=current,
                triplets_used=rows.triplets_used,
                steps=self.steps,
            )
            context.keep_checkpoints(self.keep_checkpoints)

    def _train(self, engine: VerlEngine, groups: list[Group], step: int) -> tuple[BatchRows, dict[str, float]]:
        """Build the batch and update; without a usable row, nothing is updated."""
        mark = time.perf_counter()
        policy = step - 1  # the version that this step starts from
        rows = select_rows(
            groups,
            oldest_policy_version=policy - self.steps_ahead,
            prompt_tokens_max=self.prompt_tokens_max,
            response_tokens_max=self.response_tokens_max,
        )
        metrics: dict[str, float] = {"batch/rows": float(len(rows.rows))}
        metrics |= {f"batch/excluded_{reason.value}": float(count) for reason, count in rows.excluded.items()}
        if not rows.rows:
            logger.warning("step %d has nothing to learn from: %s", step, dict(rows.excluded))
            return rows, metrics
        arrays = build_arrays(rows.rows)
        metrics |= _batch_metrics(arrays, policy)
        metrics["seconds/batch"] = time.perf_counter() - mark
        mark = time.perf_counter()
        fresh = (arrays.policy_versions == policy) | ((arrays.policy_versions == NO_VERSION) & (self.steps_ahead == 0))
        metrics |= engine.update(arrays, compared=fresh, seed=step)
        metrics["seconds/update"] = time.perf_counter() - mark
        if metrics["logprob_diff_max"] > LOGPROB_DIFF_EXPECTED_MAX:
            logger.warning(
                "step %d: actor and sampled log-probabilities differ by up to %.2g (expected below %g)",
                step,
                metrics["logprob_diff_max"],
                LOGPROB_DIFF_EXPECTED_MAX,
            )
        return rows, metrics

    def _validate(self, context: AlgorithmContext, step: int) -> dict[str, float]:
        """Mean reward on the validation tasks of the policy that this step starts from."""
        if not self.validate_every or (step - 1) % self.validate_every:
            return {}
        groups = context.validate(step - 1)
        rewards = [t.reward for group in groups for t in group.trajectories if t.reward is not None]
        return {"validation/reward_mean": float(np.mean(rewards))} if rewards else {}

    def _publish_first(self, context: AlgorithmContext) -> None:
        folder = context.checkpoints.write(0, lambda path: write_initial_model(self, path, seed=context.seed))
        context.publish_resources(self._resources(context, 0, folder))

    def _resources(self, context: AlgorithmContext, version: int, checkpoint: Path) -> ResourcesRecord:
        model = f"{self.served_model}@{version}"
        token = context.settings.proxy_token
        resources: NamedResources = {
            self.resource_name: ProxyLLM(
                endpoint=f"{_proxy_url(context.settings)}/v1",
                model=model,
                api_key=None if token is None else token.get_secret_value(),
                sampling_parameters={"temperature": self.temperature} | dict(self.sampling_parameters),
            )
        }
        return context.resources_record(version, resources, model=model, checkpoint=checkpoint)


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


def _batch_metrics(arrays: BatchArrays, policy: int) -> dict[str, float]:
    known = arrays.policy_versions[arrays.policy_versions != NO_VERSION]
    return {
        "batch/tokens": float(arrays.tokens),
        "batch/response_tokens": float(len(arrays.response_ids)),
        "batch/staleness_max": float(policy - known.min()) if len(known) else 0.0,
    }
