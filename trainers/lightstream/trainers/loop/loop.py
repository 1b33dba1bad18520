"""The loop, made of a source of groups, a ledger, an engine and policy servers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lightstream.schemas.records import ResourcesRecord, StepOutcome

from ..rollouts.batch import check_agents
from .context import AlgorithmContext
from .ending import Breaker, is_done, say_done
from .generations import dump_generations
from .options import LoopOptions
from .policy import begin, latest, own_policy, policy_resources
from .protocols import Engine
from .recovery import Recovery
from .step import StepBatch, select_batch, update
from .validation import check_can_measure, is_to_be_measured, measure_last, validates_before, validation
from .waves import Waves

__all__ = ["TrainingLoop"]


class TrainingLoop:
    """The steps of one run. What it holds follows from the history, but for discarded tries in a row.

    Args:
        options: sizes and rules.
        context: where groups come from and steps go, and the servers that sample.
        write_first: writes the initial model into an empty folder.
        new_engine: an engine with the weights of a folder, and those that the run began with.
    """

    def __init__(
        self,
        options: LoopOptions,
        context: AlgorithmContext,
        *,
        write_first: Callable[[Path], None],
        new_engine: Callable[[Path, Path | None], Engine],
    ) -> None:
        self._options = options
        self._context = context
        self._write_first = write_first
        self._new_engine = new_engine

    def run(self) -> None:
        """Make all steps that are not made, and measure the policy of the last."""
        options, context = self._options, self._context
        check_can_measure(options, context)
        context.progress.of_failures = options.of_failures(context.rollout_config.retry_condition)
        begin(options, context, self._write_first)
        if options.val_only or is_done(options, context):
            if is_to_be_measured(options, context):
                self._swap()
                measure_last(options, context)
            say_done(options, context)
            return
        self._swap()
        recovery = Recovery(options, context)
        waves, breaker = Waves(options, context), Breaker(options.steps_without_signal_max, context.progress)
        engine: Engine | None = None
        try:
            while not is_done(options, context):
                step, started = context.last_step + 1, context.now()
                waves.ask(step, again=breaker.in_a_row > 0)
                if engine is None:  # loading takes seconds, in which the first rollouts run
                    engine = recovery.restore(self._new_engine)
                    recovery.keep()  # and not what a crash left behind
                recovery.save_if_due(engine)
                metrics = {"seconds/swap": self._swap()}
                if validates_before(options, context, step):
                    metrics |= validation(options, context)
                mark = time.perf_counter()
                groups = waves.take(step)
                metrics["seconds/collect"] = time.perf_counter() - mark
                if latest(context).version == 0:
                    check_agents(groups.kept + groups.silent, options.policies)
                version = latest(context).version
                own = partial(own_policy, options, context, version)
                batch = select_batch(options, groups, version, engine, own)
                metrics |= batch.metrics
                dump_generations(options.rollout_data_dir, step, groups.kept + groups.silent, context)
                learned = self._learn(engine, batch, step, metrics)
                context.commit(
                    step,
                    groups.kept + groups.silent,
                    started_unix_nano=started,
                    metrics=metrics,
                    resources=learned.resources,
                    triplets_used=batch.rows.triplets_used,
                    not_trained=batch.rows.not_trained,
                    outcome=learned.outcome,
                    cause=learned.cause,
                    steps=options.steps,
                )
                breaker.after(learned.outcome, step, groups.kept, batch.rows, learned.cause)
                recovery.keep()
        finally:
            if engine is not None:
                engine.close()
        measure_last(options, context)

    def _swap(self) -> float:
        """Have the latest version served; what is being sampled waits meanwhile."""
        servers = self._context.servers
        servers.pause()
        try:
            return servers.load(latest(self._context))
        finally:
            servers.resume()

    def _learn(self, engine: Engine, batch: StepBatch, step: int, metrics: dict[str, float]) -> _Learned:
        """Update on a batch and write the weights; nothing is published where nothing was learned."""
        if batch.outcome is not StepOutcome.UPDATED:
            return _Learned(batch.outcome)
        options, context = self._options, self._context
        version = latest(context).version
        made = update(engine, batch, context, step, version, gap_max=options.gap_max)
        metrics |= made.metrics
        if made.cause:
            context.progress.say(f"Step {step} was not learned from: {made.cause}.")
        if not made.learned:
            return _Learned(StepOutcome.DISCARDED, cause=made.cause)
        mark = time.perf_counter()
        checkpoint = context.checkpoints.write(step, engine.save_weights)
        engine.saved_in(checkpoint)
        metrics["seconds/checkpoint"] = time.perf_counter() - mark
        resources = policy_resources(options, context, version + 1, checkpoint)
        return _Learned(StepOutcome.UPDATED, resources, made.cause)


@dataclass(frozen=True, slots=True)
class _Learned:
    """What a step came to, what it publishes, and why a policy learned nothing."""

    outcome: StepOutcome
    resources: ResourcesRecord | None = None
    cause: str = ""
