"""Which rollouts are asked for when, and which groups a step takes."""

from __future__ import annotations

from ..algorithm import AlgorithmContext, CollectError
from ..groups import Group
from .options import LoopOptions

__all__ = ["Waves"]


class Waves:
    """The rollouts of a run, a wave of ``tasks_per_step`` groups for each step."""

    def __init__(self, options: LoopOptions, context: AlgorithmContext) -> None:
        self._options = options
        self._context = context
        self._waiting: list[str] = []
        # With steps ahead, earlier steps may have left slow groups behind: all that are not consumed are asked for.
        self._next = 1 if options.steps_ahead else context.last_step + 1

    def ask(self, step: int, *, again: bool) -> None:
        """Ask for the rollouts of this step and of those ahead, and again for those of a discarded step."""
        options = self._options
        ahead = range(self._next, min(step + options.steps_ahead, options.steps) + 1)
        for wave in [*([step] if again else []), *ahead]:
            self._waiting += self._context.enqueue_step(
                wave, tasks=options.tasks_per_step, rollouts_per_task=options.rollouts_per_task
            )
        self._next = max(self._next, ahead.stop)

    def take(self) -> list[Group]:
        """The groups of the next step; empty where none is complete in time."""
        try:
            groups = self._context.collect(self._waiting, self._options.tasks_per_step)
        except CollectError:
            groups = []
        gone = self._context.skipped.union(group.group_id for group in groups)
        self._waiting = [group_id for group_id in self._waiting if group_id not in gone]
        return groups
