"""The loop, made of rollouts, steps, an engine and policy servers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lightstream.schemas.records import ResourcesRecord, StepOutcome

from ..rollouts.batch import check_agents
from ..rollouts.rollouts import Rollouts
from .ending import Breaker, is_done, say_done
from .generations import dump_generations
from .options import LoopOptions
from .policy import begin, latest, own_policy, policy_resources
from .protocols import Engine, PolicyServers
from .recovery import Recovery
from .step import StepBatch, select_batch, update
from .steps import Steps
from .validation import check_can_measure, is_to_be_measured, measure_last, validates_before, validation
from .waves import Waves


class TrainingLoop:
    """The steps of one run. All of its state but the count of discarded tries in a row is rebuilt from the ledger.

    Args:
        options: sizes and rules.
        rollouts: where groups come from.
        steps: where they go.
        servers: those that sample.
        write_first: writes the initial model into an empty folder.
        new_engine: an engine with the weights of a folder, and those that the run began with.
    """

    def __init__(
        self,
        options: LoopOptions,
        rollouts: Rollouts,
        steps: Steps,
        servers: PolicyServers,
        *,
        write_first: Callable[[Path], None],
        new_engine: Callable[[Path, Path | None], Engine],
    ) -> None:
        self._options = options
        self._run = steps.run
        self._rollouts = rollouts
        self._steps = steps
        self._servers = servers
        self._write_first = write_first
        self._new_engine = new_engine

    def run(self) -> None:
        """Make all steps that are not made, and measure the policy of the last."""
        options, run, rollouts, steps = self._options, self._run, self._rollouts, self._steps
        check_can_measure(options, rollouts)
        run.progress.explain_failures(options.of_failures(rollouts.rollout_config.retry_condition))
        begin(options, steps, self._servers, self._write_first)
        if options.val_only or is_done(options, run):
            if is_to_be_measured(options, run):
                self._swap()
                measure_last(options, steps)
            say_done(options, run)
            return
        self._swap()
        recovery = Recovery(options, steps)
        waves, breaker = Waves(options, rollouts), Breaker(options.steps_without_signal_max, run.progress)
        engine: Engine | None = None
        try:
            while not is_done(options, run):
                step, started = run.last_step + 1, run.now()
                waves.ask(step, again=breaker.in_a_row > 0)
                if engine is None:  # loading takes seconds, in which the first rollouts run
                    engine = recovery.restore(self._new_engine)
                    recovery.keep()  # and not what a crash left behind
                recovery.save_if_due(engine)
                metrics = {"seconds/swap": self._swap()}
                if validates_before(options, run, step):
                    metrics |= validation(options, rollouts)
                mark = time.perf_counter()
                groups = waves.take(step)
                metrics["seconds/collect"] = time.perf_counter() - mark
                version = latest(run).version
                if version == 0:
                    check_agents(groups.kept + groups.silent, options.policies)
                own = partial(own_policy, options, run, version)
                batch = select_batch(options, groups, version, engine, own)
                metrics |= batch.metrics
                dump_generations(options.rollout_data_dir, step, groups.kept + groups.silent, run)
                learned = self._learn(engine, batch, step, metrics)
                steps.commit(
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
        measure_last(options, steps)

    def _swap(self) -> float:
        """Have the latest version served; what is being sampled waits meanwhile."""
        servers = self._servers
        servers.pause()
        try:
            return servers.load(latest(self._run))
        finally:
            servers.resume()

    def _learn(self, engine: Engine, batch: StepBatch, step: int, metrics: dict[str, float]) -> _Learned:
        """Update on a batch and write the weights; nothing is published where nothing was learned."""
        if batch.outcome is not StepOutcome.UPDATED:
            return _Learned(batch.outcome)
        options, run = self._options, self._run
        version = latest(run).version
        run.progress.live(f"step {step}/{options.steps}: updating the weights", time.monotonic())
        made = update(engine, batch, run, step, version, gap_max=options.gap_max)
        metrics |= made.metrics
        if made.cause:
            run.progress.say(f"Step {step} was not learned from: {made.cause}.")
        if not made.learned:
            return _Learned(StepOutcome.DISCARDED, cause=made.cause)
        mark = time.perf_counter()
        checkpoint = run.checkpoints.write(step, engine.save_weights)
        engine.saved_in(checkpoint)
        metrics["seconds/checkpoint"] = time.perf_counter() - mark
        resources = policy_resources(options, self._steps, self._servers, version + 1, checkpoint)
        return _Learned(StepOutcome.UPDATED, resources, made.cause)


@dataclass(frozen=True, slots=True)
class _Learned:
    """What a step came to, what it publishes, and why a policy learned nothing."""

    outcome: StepOutcome
    resources: ResourcesRecord | None = None
    cause: str = ""
