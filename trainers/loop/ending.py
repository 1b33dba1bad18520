"""The conditions that end a run: its steps are made, its target is reached, or its steps teach nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from lightstream.schemas.errors import TrainingError
from lightstream.schemas.records import DropReason, StepOutcome, Trajectory

from ..rollouts.batch import BatchRows, Exclusion, reasons_of
from ..rollouts.groups import Group
from ..run.progress import Progress
from ..run.run import Run
from .options import GAP_ADVICE, LoopOptions

AGENTS_NAMED_MAX = 3
"""Names of agents that are not trained, the most frequent: a mistyped expression is seen from one."""


def is_done(options: LoopOptions, run: Run) -> bool:
    """Whether all steps are made, or the last ones hold the reward that was wanted."""
    last = run.history.mean_rewards[-options.reward_target_steps :]
    return run.last_step >= options.steps or (
        options.reward_target is not None
        and len(last) == options.reward_target_steps
        and fmean(last) >= options.reward_target  # false for NaN
    )


def say_done(options: LoopOptions, run: Run) -> None:
    """Tell the user who started a finished run, or had its policy measured."""
    if options.val_only:
        run.progress.say(f"The policy after step {run.last_step} of run {run.run_id!r} is measured.")
        return
    made = f"{run.last_step} of {options.steps} steps of run {run.run_id!r} are made"
    if run.last_step < options.steps:
        made += f", and the last {options.reward_target_steps} hold a mean reward of {options.reward_target}"
    run.progress.say(f"Nothing left to do: {made}.")


class Breaker:
    """Counts tries in a row without training data.

    Args:
        tries_max: so many end the run.
        progress: knows the agent's errors.
    """

    def __init__(self, tries_max: int, progress: Progress) -> None:
        self._tries_max = tries_max
        self._progress = progress
        self.in_a_row = 0

    def after(self, outcome: StepOutcome, step: int, groups: list[Group], rows: BatchRows, cause: str = "") -> None:
        """Take in how a try of a step came out; ends the run where going on is pointless.

        Raises:
            TrainingError: too many tries in a row had nothing to train on; says what was most often the matter.
        """
        if outcome is not StepOutcome.DISCARDED:
            self.in_a_row = 0
            return
        self.in_a_row += 1
        attempts = [t for group in groups for t in group.trajectories]
        all_failed = bool(attempts) and all(t.rollout_status.value != "succeeded" for t in attempts)
        if not all_failed and self.in_a_row < self._tries_max:
            return
        errors = self._progress.errors.most_common(1)
        if all_failed:
            what = f"all {len(attempts)} rollouts of step {step} failed"
        else:
            what = f"nothing could be trained on in {self.in_a_row} tries of step {step}"
        if cause:
            why = cause
        elif not groups:
            why = "no group was complete in time"
        elif errors:
            why = f"most often: {errors[0][0]}"
        else:
            why = f"reasons: {reasons_of(rows.excluded)}"
        raise TrainingError(
            f"{what}; {why}.",
            next_step="Nothing is lost: after the fix, the same command goes on with this step. "
            f"{_advice(rows, attempts, failed=all_failed)}",
        )


def _advice(rows: BatchRows, attempts: Sequence[Trajectory], *, failed: bool) -> str:
    if not attempts:
        return "`lightstream status` shows whether the worker and the Runners are running."
    if failed:
        return "`lightstream explain ROLLOUT_ID` shows one of them."
    others = Counter(d.detail for t in attempts for d in t.drops if d.reason is DropReason.AGENT_NOT_SELECTED)
    if others and not rows.rows:
        named = "; ".join(detail for detail, _ in others.most_common(AGENTS_NAMED_MAX))
        return f"No call was made by an agent that is trained ({named}): see trained_agents, or adapter's agent_match."
    refused = [reason for reason in (Exclusion.LOGPROB_GAP, Exclusion.NOT_FINITE) if rows.excluded[reason]]
    commonest = refused or [reason for reason, _ in rows.excluded.most_common(1)]
    reason = commonest[0].value if commonest else ""
    return {
        "no_reward": "Does the agent return a reward? VERL(reward_missing='fill') gives one to those without.",
        "not_comparable": "Advantages compare the rollouts of a task: set rollouts_per_task to at least 2.",
        "no_calls": "Do the agent's calls go through the proxy, at the base URL of its `llm` resource?",
        "no_logprobs": "The model server must return log-probabilities of its tokens.",
        "logprob_gap": GAP_ADVICE,
        "not_finite": "See the rewards of these rollouts: huge ones make gradients that are no numbers. Keep rewards "
        "between -1000 and 1000 or so.",
        "other_policy": "The calls are of other models than this run's policy: let the agent call the model of its "
        "resource.",
        "other_temperature": "Let the agent pass on the sampling_parameters of its resource, or set "
        "VERL(temperature=...) to its own.",
        "other_sampling": "Leave top_p, penalties and formats out of the agent's calls while training.",
        "unknown_version": "The model server must say which version sampled: `<model>@<version>`.",
        "too_long": "Raise response_tokens_max or prompt_tokens_max, or set overlong='truncate'.",
    }.get(reason, "`lightstream sql 'SELECT * FROM why_not_trained'` shows each rollout.")
