"""Decides which rollouts a training asks for before each step, and which groups of rollouts a step trains on.

A *group* is the rollouts of one task; a *wave* is the ``tasks_per_step`` groups that are enqueued for one step. With
``steps_ahead`` = S, the wave of step n + S is enqueued just before step n is made, so agents work while the trainer
does.

Invariants:

- At most the groups of S + 1 waves, and ``over_sampling`` more, are enqueued and not consumed, restarts included.
- Each group has a *last step*, the latest that may train on it: the step of its own wave (step S + 1 for the first S
  waves). Until then its policy is at most S updates old.
- A step takes complete groups, in the order of their last steps, each once.
- ``stale="wait"``: every group is trained on. A step takes groups with a later last step only as long as the following
  steps still have room for all groups that must be taken before; else it waits for one of those.
- ``stale="drop"``: a step takes whichever groups are complete first. A group that is incomplete after its last step is
  given up, and another one is enqueued in its place.
- A group whose rewards give no gradient (*silent*) is replaced up to ``refill_silent_groups`` times a step; it counts
  as consumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..rollouts.batch import select_rows, split_groups
from ..rollouts.groups import Group, natural_order
from ..rollouts.rollouts import Rollouts
from .options import LoopOptions


@dataclass(frozen=True, slots=True)
class StepGroups:
    """The groups that a step consumes.

    Attributes:
        kept: the groups that it is made of.
        silent: groups without a signal, in whose place others were taken.
    """

    kept: list[Group] = field(default_factory=list[Group])
    silent: list[Group] = field(default_factory=list[Group])


class Waves:
    """The groups of a run that are enqueued and not consumed, with the last step that may take each."""

    def __init__(self, options: LoopOptions, rollouts: Rollouts) -> None:
        self._options = options
        self._rollouts = rollouts
        self._last_step: dict[str, int] = {}
        run = rollouts.run
        # With steps ahead, earlier steps may have left slow groups behind: all that are not consumed are asked for.
        self._next = run.history.settled.below_step if options.steps_ahead else run.last_step + 1

    def ask(self, step: int, *, again: bool) -> None:
        """Request the rollouts of this step and of later ones, and once more for a discarded step."""
        options, ahead = self._options, self._options.steps_ahead
        if again:
            self._ask_wave(step, step + ahead)
        for wave in range(self._next, min(step + ahead, options.steps) + 1):
            self._ask_wave(wave, max(wave, ahead + 1))
            self._next = wave + 1
        if options.stale == "drop":
            wanted = (ahead + 1) * options.tasks_per_step + options.over_sampling
            self._ask_further(wanted - len(self._last_step), step)

    def take(self, step: int) -> StepGroups:
        """The groups of a step, in the natural order of their names; none where none is complete in time."""
        options = self._options
        kept: list[Group] = []
        silent: list[Group] = []
        refills = options.refill_silent_groups
        while len(kept) < options.tasks_per_step:
            group = self._next_group(step, options.tasks_per_step - len(kept))
            if group is not None:
                (silent if _is_silent(options, group) else kept).append(group)
                continue
            missing = min(options.tasks_per_step - len(kept), len(silent), refills)
            if missing <= 0:
                break
            refills -= missing
            self._ask_further(missing, step, besides=silent + kept)
        if options.stale == "drop":
            late = [name for name, last in self._last_step.items() if last <= step]
            self._rollouts.source.give_up(late)
            self._forget(late)
        return split_silent(options, kept + silent)

    def _next_group(self, step: int, room: int) -> Group | None:
        """The next group of a step that has room for so many; ``None`` where there is none."""
        options, source = self._options, self._rollouts.source
        least = None if options.group_min is None else options.group_min + options.has_baselines
        while names := self._eligible(step, room):
            group = next(source.groups(names, least=least, wait_s=options.group_deadline_s), None)
            self._forget(self._rollouts.skipped)
            if group is not None:
                self._forget([group.group_id])
                return group
        return None

    def _eligible(self, step: int, room: int) -> list[str]:
        """The groups of which the step may take the next one, the oldest first."""
        names = sorted(self._last_step, key=lambda name: self._last_step[name])
        if self._options.stale == "wait":
            for last in sorted(set(self._last_step.values())):
                until_then = [name for name in names if self._last_step[name] <= last]
                if len(until_then) - self._options.tasks_per_step * max(0, last - step) >= room:
                    return until_then  # the steps after this one have no room for more of these
        return names

    def _forget(self, names: Iterable[str]) -> None:
        for name in names:
            self._last_step.pop(name, None)

    def _ask_wave(self, wave: int, last_step: int) -> None:
        options = self._options
        names = self._rollouts.enqueue_step(
            wave,
            tasks=options.tasks_per_step,
            rollouts_per_task=options.rollouts_per_task,
            baselines=options.has_baselines,
            known_step=wave - 1 - options.steps_ahead,
        )
        self._last_step |= dict.fromkeys(names, last_step)

    def _ask_further(self, count: int, step: int, besides: Sequence[Group] = ()) -> None:
        if count > 0:
            taken = [group.group_id for group in besides]
            names = self._rollouts.enqueue_further(
                count,
                rollouts_per_task=self._options.rollouts_per_task,
                baselines=self._options.has_baselines,
                besides=[*self._last_step, *taken],
            )
            self._last_step |= dict.fromkeys(names, step + self._options.steps_ahead)


def split_silent(options: LoopOptions, groups: Sequence[Group]) -> StepGroups:
    """Return the groups that a step trains on, in the natural order of their names. Silent ones alone are kept."""
    in_order = sorted(groups, key=_by_name)
    silent = [group for group in in_order if _is_silent(options, group)]
    kept = [group for group in in_order if group not in silent]
    return StepGroups(kept, silent) if kept else StepGroups(kept=silent)


def _is_silent(options: LoopOptions, group: Group) -> bool:
    """Whether a group is to be replaced, as it has no signal."""
    if options.refill_silent_groups == 0:
        return False
    of_policies = split_groups([group], options.policies).groups.values()
    return not any(select_rows(groups, scoring=options.scoring).has_signal for groups in of_policies)


def _by_name(group: Group) -> tuple[tuple[int, int, str], ...]:
    return natural_order(group.group_id)
