"""Lines for the console of a training: one a step, and the first errors of the agent."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TextIO

from lightstream.schemas.records import AttemptStatus, DropReason, StepOutcome, Trajectory

from .report import StepReport

ERRORS_SHOWN_MAX = 3
"""Different errors of agents that are shown; all are in the store."""

BARS = "▁▂▃▄▅▆▇█"
SPARKLINE_COLUMNS = 60
NO_REWARD = "-"

THOUSANDS_FROM = 10_000
LINE_COLUMNS_MAX = 79
PART_GAP, CONTINUES = "  ", "    "
CLEAR_LINE = "\r\x1b[K"
LIVE_PAUSE_S, LIVE_LINES_PAUSE_S = 1.0, 30.0
SFT_LOSS = "sft/loss"


class Progress:
    """Writes lines. Not thread-safe, except :meth:`say` and :meth:`live`.

    Args:
        write: takes a line; ``None``: nothing is said.
        terminal: where a line of what is going on is overwritten; ``None``: it is said now and then.
    """

    def __init__(self, write: Callable[[str], None] | None, *, terminal: TextIO | None = None) -> None:
        self._write = write
        self._terminal = terminal
        self._is_live = False
        self._live_s = -LIVE_LINES_PAUSE_S
        self.failed = 0
        self._lock = threading.Lock()
        self._shown: set[str] = set()
        self.errors: Counter[str] = Counter()
        self._of_failures = ""
        self.rewards: list[float] = []
        self.losses: list[float] = []

    def say(self, line: str) -> None:
        """One line."""
        if self._write is not None:
            with self._lock:
                if self._is_live and self._terminal is not None:
                    self._terminal.write(CLEAR_LINE)
                    self._is_live = False
                self._write(line)

    def live(self, line: str, now_s: float) -> None:
        """The present state: overwritten by the next in a terminal, once a second at most; elsewhere a line each 30 s.

        Args:
            now_s: of a clock that never goes back, in seconds.
        """
        pause_s = LIVE_LINES_PAUSE_S if self._terminal is None else LIVE_PAUSE_S
        if self._write is None or now_s - self._live_s < pause_s:
            return
        self._live_s = now_s
        if self._terminal is None:
            self.say(line)
            return
        with self._lock:
            self._terminal.write(f"{CLEAR_LINE}{line[:LINE_COLUMNS_MAX]}")
            self._terminal.flush()
            self._is_live = True

    def hint(self, line: str) -> None:
        """A line that is said of the first step that it is true of, and not again."""
        if "hint" not in self._shown:
            self._shown.add("hint")
            self.say(line)

    def explain_failures(self, line: str) -> None:
        """Say this behind the first attempt that fails or times out: the fate of such attempts."""
        self._of_failures = line

    def saw(self, trajectory: Trajectory) -> None:
        """A trajectory of the run has come: the first errors of the agent, and of rules for rewards, are shown."""
        if trajectory.error_type is not None or trajectory.error_message:
            self._error(f"The agent failed in rollout {trajectory.rollout_id}", error_line(trajectory))
        elif trajectory.status is AttemptStatus.TIMEOUT:
            self._error(f"An attempt of rollout {trajectory.rollout_id} took too long", "it timed out")
        if trajectory.status in (AttemptStatus.FAILED, AttemptStatus.TIMEOUT):
            self.failed += 1
            if self._of_failures:
                self.say(self._of_failures)
                self._of_failures = ""
        for drop in trajectory.drops:
            if drop.reason is DropReason.BAD_REWARD and not drop.span_id:  # of no single reward, but of all
                self._error(f"Rollout {trajectory.rollout_id} has no rewards", drop.detail.rstrip("."))

    def step(self, report: StepReport) -> None:
        """A step was committed."""
        if report.outcome is not StepOutcome.MEASURED:
            self.rewards.append(report.mean_reward)
            self.losses.append(report.metrics.get(SFT_LOSS, math.nan))
        self.say(step_line(report))

    def _error(self, what: str, line: str) -> None:
        self.errors[line] += 1
        if line not in self._shown and len(self._shown) < ERRORS_SHOWN_MAX:
            self._shown.add(line)
            self.say(f"{what}: {line}")

    @property
    def curve(self) -> str:
        """Mean rewards of the steps as bars, or losses of SFT; empty where there were neither."""
        losses = [loss for loss in self.losses if math.isfinite(loss)]
        if losses:
            return f"{sparkline(losses)}  loss {losses[0]:.4f} → {losses[-1]:.4f}"
        finite = [reward for reward in self.rewards if math.isfinite(reward)]
        if not finite:
            return ""
        return f"{sparkline(finite)}  mean reward {finite[0]:.3f} → {finite[-1]:.3f}"


def error_line(trajectory: Trajectory) -> str:
    """First and last line of an attempt's error: the store has the lines of the traceback between them."""
    lines = [line.strip() for line in (trajectory.error_message or "").splitlines() if line.strip()]
    text = lines[-1] if lines else ""
    if lines and lines[0] not in text and not lines[0].startswith(("Traceback", "…")):
        text = f"{lines[0]} … {text}"
    kind = trajectory.error_type or ""
    if not text:
        return kind or "an error without a message"
    return text if not kind or kind in text else f"{kind}: {text}"


def step_line(report: StepReport) -> str:
    """A step in a line of at most 79 columns, or in several."""
    metrics = report.metrics
    if report.outcome is StepOutcome.MEASURED:
        return f"after step {report.step}  {_validation(metrics)}"
    of = f"/{report.steps}" if report.steps else ""
    reward = NO_REWARD
    if math.isfinite(report.mean_reward):
        reward = f"{report.mean_reward:.3f}±{metrics.get('reward/std', 0.0):.3f}"
    failed = int(metrics.get("rollouts/failed", 0))
    parts = [
        f"step {report.step}{of}",
        f"reward {reward}",
        f"{report.rollouts - failed} ok" + (f", {failed} failed" if failed else ""),
    ]
    if SFT_LOSS in metrics:  # it has no rollouts and no rewards
        parts[1:] = [f"loss {metrics[SFT_LOSS]:.4f}"]
    if report.tokens:
        tokens = f"{report.tokens:,}" if report.tokens < THOUSANDS_FROM else f"{report.tokens / 1000:,.0f}k"
        parts.append(f"{tokens} tokens")
    parts.append(f"{report.seconds:.1f} s{_limit(metrics)}")
    if validation := _validation(metrics):
        parts.append(validation)
    if report.outcome is StepOutcome.DISCARDED:
        parts.append("discarded: nothing of it can be trained on")
    elif report.outcome is StepOutcome.UNCHANGED:
        groups = int(metrics.get("groups", 0))
        parts.append(f"all {groups} groups have one reward each: nothing to learn")
    return lines_of(parts)


def _limit(metrics: dict[str, float]) -> str:
    """The part that took most of the step's time, in brackets."""
    parts = {
        "rollouts": metrics.get("seconds/collect", 0.0),
        "update": metrics.get("seconds/update", 0.0),
        "checkpoint": metrics.get("seconds/checkpoint", 0.0),
        "validation": metrics.get("seconds/validation", 0.0),
    }
    name = max(parts, key=lambda part: parts[part])
    return f" ({name})" if parts[name] else ""


def _validation(metrics: dict[str, float]) -> str:
    if "validation/reward_mean" not in metrics:
        return "validation without a complete group" if "validation/groups_skipped" in metrics else ""
    samples = int(metrics.get("validation/samples", 1))
    best = f", best of {samples} {metrics['validation/reward_best']:.3f}" if samples > 1 else ""
    return f"validation {metrics['validation/reward_mean']:.3f}{best}"


def sparkline(values: Sequence[float]) -> str:
    """Values as bars from their least to their largest, at most 60; each is the mean of its values."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return ""
    columns = min(SPARKLINE_COLUMNS, len(finite))
    edges = [round(i * len(finite) / columns) for i in range(columns + 1)]
    means = [sum(finite[a:b]) / (b - a) for a, b in pairwise(edges)]
    least, most = min(means), max(means)
    heights = [(mean - least) / (most - least or 1.0) for mean in means]
    return "".join(BARS[min(len(BARS) - 1, int(height * len(BARS)))] for height in heights)


def rollouts_line(done: int, wanted: int, failed: int, seconds: float) -> str:
    """Rollouts that are waited for, within a line: how many have come, and how long the others will take at their rate.

    Args:
        seconds: since they are waited for.
    """
    left = f", about {clock(seconds * (wanted - done) / done)} left" if done else ""
    return f"rollouts {done}/{wanted}{f', {failed} failed' if failed else ''}, {clock(seconds)}{left}"


def clock(seconds: float) -> str:
    """Minutes and seconds, or hours, minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def lines_of(parts: Sequence[str]) -> str:
    """Parts beside each other, and parts for which a line has no room below it."""
    lines = [parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + len(PART_GAP) + len(part) <= LINE_COLUMNS_MAX:
            lines[-1] += PART_GAP + part
        else:
            lines.append(f"{CONTINUES}{part}")
    return "\n".join(lines)
