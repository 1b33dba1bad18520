"""The gate before a release: may a candidate take the place of the stable model? Pure.

Every check must pass, and each errs with the stated probability at most. So a candidate that should fail any of them
passes with that probability at most, however many there are: an intersection-union test (Berger, 1982,
Technometrics 24).

A check takes differences for symmetric about their mean. A loss so rare that none of the n tasks shows it is not seen:
one of 1 task in m goes unseen with the probability (1 - 1/m)**n.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from lightstream.schemas.errors import SettingsError
from lightstream.schemas.records import GateCheck, GateCheckKind, GateOutcome

from .statistics import Sample, by_task, chance_of_at_least

ERROR_RATE = 0.01
RESAMPLES = 9999
FAILED_SHARE_MAX = 0.1
"""Of the stable model's rollouts: if more failed, something else than the candidate is being measured."""

FIGURES: Mapping[str, Callable[[Sample], float | None]] = {
    "cost": lambda sample: sample.cost,
    "length": lambda sample: sample.response_tokens,
    "tool_errors": lambda sample: sample.tool_errors,
    "refusals": lambda sample: sample.refusals,
    "latency": lambda sample: sample.seconds,
    "failed": lambda sample: float(sample.failed),
}
"""Guard figures, each of one rollout: cost, tokens of the responses, failed runs of tools, calls that were refused,
seconds of all calls, and 1 for a failed rollout."""


@dataclass(frozen=True, slots=True)
class Guard:
    """A figure that may not grow too much: at most ``ratio`` times the stable model's, plus ``slack``, a rollout.

    Raises:
        SettingsError: there is no such figure, or a number is negative.
    """

    figure: str
    ratio: float = 1.0
    slack: float = 0.0

    def __post_init__(self) -> None:
        if self.figure not in FIGURES:
            raise SettingsError(f"there is no guard figure {self.figure!r}.", next_step=f"Take {', '.join(FIGURES)}.")
        if self.ratio < 0 or self.slack < 0:
            raise SettingsError(f"the guard of {self.figure} is negative: {self.ratio:g}, {self.slack:g}.")


GUARDS = (
    Guard("cost", 1.25),
    Guard("length", 1.25, 8.0),
    Guard("tool_errors", 1.0, 0.1),
    Guard("refusals", 1.0, 0.1),
    Guard("latency", 1.5, 0.5),
    Guard("failed", 1.0, 0.1),
)


@dataclass(frozen=True, slots=True)
class Bar:
    """The demands on the rewards.

    Attributes:
        margin: a candidate whose mean reward is lower by more than this fails.
        gain: its mean reward must be higher by more than this.
        gain_on: set that must show the gain; empty: the first one.
        error_rate: greatest probability with which one check passes wrongly.

    Raises:
        SettingsError: the margin is not above 0, or the error rate is not within 0.0001..0.5.
    """

    margin: float = 0.02
    gain: float = 0.0
    gain_on: str = ""
    error_rate: float = ERROR_RATE
    guards: Sequence[Guard] = GUARDS

    def __post_init__(self) -> None:
        if self.margin <= 0:
            raise SettingsError(
                f"the margin of the gate is {self.margin:g}, and no difference is surely 0.",
                next_step="Give the loss of mean reward that you would accept, such as 0.02.",
            )
        if not 1 / (RESAMPLES + 1) <= self.error_rate <= 0.5:
            raise SettingsError(f"the error rate of the gate is {self.error_rate:g}, not within 0.0001..0.5.")


@dataclass(frozen=True, slots=True)
class Decision:
    """The gate's decision.

    Attributes:
        outcome: ``undecided`` where it cannot be told, such as where the stable model fails.
        checks: in order: each set's reward, then its guards.
        notes: why it is undecided, and what was left out.
    """

    outcome: GateOutcome
    checks: list[GateCheck]
    notes: list[str]


def decide(
    sets: Mapping[str, tuple[Sequence[Sample], Sequence[Sample]]], bar: Bar, *, versions: tuple[int | None, int | None]
) -> Decision:
    """Decide on a candidate by its samples on one or several sets.

    Each check is a one-sided permutation test over the signs of the tasks' differences, from the limit on. A task's
    samples are averaged first. A guard whose figure grew in no task is tested as if it had room in each. A figure that
    is not known of every sample, such as a cost without a price, is noted and not checked.

    Args:
        sets: name -> samples of the stable model, and of the candidate.
        versions: policy versions of stable and candidate, where their names have one. Samples that another version
            answered leave it undecided.

    Raises:
        SettingsError: there is no set, or none of the name that must show the gain.
    """
    gain_on = checked_gain_on(bar, sets)
    checks, notes, is_sound = list[GateCheck](), list[str](), True
    for name, (stable, candidate) in sets.items():
        problem = _problem(name, stable, candidate, versions)
        if problem:
            notes.append(problem)
            is_sound = False
            continue
        floor = min(0.0, *(sample.reward for sample in (*stable, *candidate)))
        ours, theirs = (by_task([_floored(one, floor) for one in some]) for some in (candidate, stable))
        checks.append(_reward(name, ours, theirs, bar, GateCheckKind.NOT_WORSE, -bar.margin))
        if name == gain_on:
            checks.append(_reward(name, ours, theirs, bar, GateCheckKind.BETTER, bar.gain))
        for guard in bar.guards:
            check = _guard(name, ours, theirs, bar, guard)
            if check is None and _is_known(stable, guard.figure):
                notes.append(f"{name}: {guard.figure} is known of every rollout of the stable model alone")
                is_sound = False
            elif check is None:
                notes.append(f"{name}: {guard.figure} is not known of every rollout, and is not checked")
            else:
                checks.append(check)
    if not is_sound:
        return Decision(GateOutcome.UNDECIDED, checks, notes)
    passed = all(check.passed for check in checks)
    return Decision(GateOutcome.PASSED if passed else GateOutcome.FAILED, checks, notes)


def checked_gain_on(bar: Bar, sets: Collection[str]) -> str:
    """The set that must show the gain.

    Raises:
        SettingsError: there is no set, or none of that name.
    """
    gain_on = bar.gain_on or next(iter(sets), "")
    if gain_on not in sets:
        raise SettingsError(
            f"the gate has no set {gain_on!r} to show a gain on.", next_step=f"It has {', '.join(sets) or 'none'}."
        )
    return gain_on


def _problem(
    name: str, stable: Sequence[Sample], candidate: Sequence[Sample], versions: tuple[int | None, int | None]
) -> str:
    """Why nothing can be told of a set; empty where it can."""
    if {sample.task for sample in stable} != {sample.task for sample in candidate} or not stable:
        return f"{name}: the two models did not answer the same tasks"
    for sample_of, version in ((stable, versions[0]), (candidate, versions[1])):
        others = {found for sample in sample_of for found in sample.versions if version not in (None, found)}
        if others:
            found = ", ".join(map(str, sorted(others)))
            return f"{name}: {sample_of[0].model} was asked for, and version {found} answered"
    failed = fmean(sample.failed for sample in stable)
    if failed > FAILED_SHARE_MAX:
        return (
            f"{name}: {failed:.0%} of the stable model's rollouts failed or had no reward. Mend that and ask again; "
            "`lightstream sql :failures-by-error` tells the errors"
        )
    return ""


def _is_known(samples: Sequence[Sample], figure: str) -> bool:
    return all(FIGURES[figure](sample) is not None for sample in samples)


def _floored(sample: Sample, floor: float) -> Sample:
    """A rollout that failed has the least reward of all, where rewards may be negative."""
    return replace(sample, reward=floor) if sample.failed else sample


def _reward(
    name: str,
    ours: Mapping[int, Sequence[Sample]],
    theirs: Mapping[int, Sequence[Sample]],
    bar: Bar,
    kind: GateCheckKind,
    limit: float,
) -> GateCheck:
    means = [(fmean(s.reward for s in theirs[task]), fmean(s.reward for s in ours[task])) for task in theirs]
    return _check(name, "reward", kind, means, limit, [mine - yours - limit for yours, mine in means], bar)


def _guard(
    name: str, ours: Mapping[int, Sequence[Sample]], theirs: Mapping[int, Sequence[Sample]], bar: Bar, guard: Guard
) -> GateCheck | None:
    figure = FIGURES[guard.figure]
    means = list[tuple[float, float]]()
    for task in theirs:
        yours = [value for sample in theirs[task] if (value := figure(sample)) is not None]
        mine = [value for sample in ours[task] if (value := figure(sample)) is not None]
        if len(yours) < len(theirs[task]) or len(mine) < len(ours[task]):
            return None
        means.append((fmean(yours), fmean(mine)))
    room = [guard.ratio * yours + guard.slack - mine for yours, mine in means]
    limit = guard.ratio * fmean(yours for yours, _ in means) + guard.slack
    if all(mine <= yours for yours, mine in means):
        room = [1.0] * len(means)  # it grew nowhere: where both have none, there is no room to test
    return _check(name, guard.figure, GateCheckKind.GUARD, means, limit, room, bar)


def _check(
    name: str,
    figure: str,
    kind: GateCheckKind,
    means: Sequence[tuple[float, float]],
    limit: float,
    room: Sequence[float],
    bar: Bar,
) -> GateCheck:
    probability = chance_of_at_least(room, resamples=RESAMPLES)
    return GateCheck(
        task_set=name,
        figure=figure,
        kind=kind,
        tasks=len(means),
        stable_mean=fmean(yours for yours, _ in means),
        candidate_mean=fmean(mine for _, mine in means),
        limit=limit,
        probability=probability,
        passed=probability <= bar.error_rate,
    )
