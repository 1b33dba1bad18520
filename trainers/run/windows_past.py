"""The past of a learner's windows, a fold over its training steps."""

from __future__ import annotations

from dataclasses import dataclass, field

from lightstream.schemas.records import LearningWindow, TaskRewards, TrainingStep

CONSUMED_REMEMBERED = 100_000
"""Trajectories, at least, of which is known that a window had them; those of the last two windows always are, and those
of all windows that closed behind a record that an open window still needs."""

TASKS_REMEMBERED = 100_000
"""Tasks whose mean reward is known; the ones that came last."""


def key_of(rollout_id: str, attempt_id: str) -> str:
    """Name of a trajectory: a window has it once, whichever its revision."""
    return f"{rollout_id} {attempt_id}"


@dataclass(frozen=True, slots=True)
class ClosedWindow:
    """The close of a window.

    Attributes:
        offsets: partition -> the first offset that came after it.
        watermark_unix_nano: greatest event time at the close.
        consumed: how many trajectories its step consumed.
    """

    offsets: dict[int, int]
    watermark_unix_nano: int
    consumed: int


@dataclass(slots=True)
class WindowsPast:
    """The windows before, and their trajectories.

    Attributes:
        last: the last window; ``None`` before the first.
        consumed: the last trajectories that windows consumed, by :func:`key_of`, in this order.
        tasks: task key -> rewards of all windows.
        published_end_unix_nano: end of the window that published a version last; ``None``: none has.
        tokens: tokens trained on so far.
        windows: how many there were.
        closed: the last closes in their order: all behind a record that an open window needs, and one before them.
    """

    last: LearningWindow | None = None
    consumed: dict[str, None] = field(default_factory=dict[str, None])
    tasks: dict[str, TaskRewards] = field(default_factory=dict[str, TaskRewards])
    published_end_unix_nano: int | None = None
    tokens: float = 0.0
    windows: int = 0
    closed: list[ClosedWindow] = field(default_factory=list[ClosedWindow])

    def watermark_at(self, partition: int, offset: int) -> int | None:
        """Greatest event time at the last close before a record that an open window may need; ``None`` without any."""
        for close in reversed(self.closed):
            if close.offsets.get(partition, 0) <= offset:
                return close.watermark_unix_nano
        return None

    def add_step(self, record: TrainingStep) -> None:
        """Take in a committed step with a window."""
        window = record.window
        if window is None:
            return
        self.last = window
        self.windows += 1
        for consumed in record.consumed:
            self.consumed.setdefault(key_of(consumed.rollout_id, consumed.attempt_id))
        offsets = {position.partition: position.offset for position in window.positions}
        self.closed.append(ClosedWindow(offsets, window.watermark_unix_nano, len(record.consumed)))
        needed = {position.partition: position.kept_from for position in window.positions}
        while len(self.closed) > 1 and all(
            offset <= needed.get(partition, offset) for partition, offset in self.closed[1].offsets.items()
        ):
            del self.closed[0]
        of_closed = sum(close.consumed for close in self.closed)
        excess = len(self.consumed) - max(CONSUMED_REMEMBERED, 2 * len(record.consumed), of_closed)
        for key in list(self.consumed)[: max(0, excess)]:
            del self.consumed[key]
        for rewards in window.tasks:
            known = self.tasks.pop(rewards.task, None)
            self.tasks[rewards.task] = rewards if known is None else _sum(known, rewards)
        for task in list(self.tasks)[: max(0, len(self.tasks) - TASKS_REMEMBERED)]:
            del self.tasks[task]
        if record.resources_id is not None:
            self.published_end_unix_nano = window.end_unix_nano
        self.tokens += record.metrics.get("batch/tokens", 0.0)


def _sum(one: TaskRewards, other: TaskRewards) -> TaskRewards:
    return TaskRewards(task=one.task, count=one.count + other.count, total=one.total + other.total)
