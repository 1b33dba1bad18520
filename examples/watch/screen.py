"""The live screen."""

from __future__ import annotations

import math

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from lightstream.trainers.run.progress import sparkline

from .snapshot import Snapshot

__all__ = ["render"]


def render(now: Snapshot, before: Snapshot | None, *, steps: int, title: str, note: str = "") -> RenderableType:
    """One frame: progress, reward, counts, rates since ``before``. ``note`` is shown below."""
    seconds = now.monotonic_s - before.monotonic_s if before is not None else 0.0

    def rate(name: str) -> str:
        if before is None or seconds <= 0:
            return ""
        return f"{(getattr(now, name) - getattr(before, name)) / seconds:,.0f}/s"

    counts = Table.grid(padding=(0, 3))
    for _ in range(3):
        counts.add_column(justify="right")
    for name in ("rollouts", "spans", "trajectories", "triplets", "tokens"):
        counts.add_row(name, f"{getattr(now, name):,}", Text(rate(name), style="cyan"))
    counts.add_row("view lag", f"{now.lag_records:,}", Text("records", style="dim"))
    counts.add_row("dead letters", f"{now.dead_letters:,}", "")

    reward = now.rewards[-1] if now.rewards else math.nan
    head = Table.grid(padding=(0, 2))
    head.add_row("step", f"{now.step} of {steps}", ProgressBar(total=steps, completed=now.step, width=30))
    head.add_row("mean reward", _number(reward, ".3f"), Text(sparkline(now.rewards), style="green"))
    head.add_row("log-prob difference", _number(now.logprob_diff_max, ".1e"), Text("rollout / actor, max", style="dim"))
    parts: list[RenderableType] = [head, Text(), counts]
    if note:
        parts += [Text(), Text(note, style="dim")]
    return Panel(Group(*parts), title=title, expand=False)


def _number(value: float, form: str) -> str:
    return format(value, form) if math.isfinite(value) else "-"
