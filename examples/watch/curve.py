"""The learning curve, as a picture and in the terminal."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lightstream.trainers import ViewClient

__all__ = ["LearningCurve", "read_curve"]

EDGE_STEPS = 5
"""Steps over which the means at the beginning and at the end are taken."""


@dataclass(frozen=True, slots=True)
class LearningCurve:
    """Mean reward and log-probability difference of each step, in order."""

    steps: list[int]
    rewards: list[float]
    logprob_diffs_max: list[float]

    @property
    def first(self) -> float:
        """Mean reward of the first five steps."""
        return _mean(self.rewards[:EDGE_STEPS])

    @property
    def last(self) -> float:
        """Mean reward of the last five steps."""
        return _mean(self.rewards[-EDGE_STEPS:])

    def save_png(self, path: Path, *, title: str) -> Path:
        """Draw the curve into ``path`` (PNG, 1200 by 700 pixels)."""
        import matplotlib as mpl

        mpl.use("Agg")
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots(figsize=(8, 4.67), dpi=150)
        axes.plot(self.steps, self.rewards, color="#7fb2d9", linewidth=1, label="mean reward of the step")
        smooth = [_mean(self.rewards[max(0, i - EDGE_STEPS + 1) : i + 1]) for i in range(len(self.rewards))]
        axes.plot(self.steps, smooth, color="#1f4e79", linewidth=2, label=f"mean of {EDGE_STEPS} steps")
        axes.set(xlabel="step", ylabel="mean reward", ylim=(0, 1.02), title=title)
        axes.grid(alpha=0.3)
        axes.legend(loc="lower right")
        figure.tight_layout()
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
        plt.close(figure)
        return path

    def text(self, *, width: int = 90, height: int = 18) -> str:
        """The curve drawn with characters, ``width`` by ``height``."""
        import plotext

        plotext.clear_figure()
        plotext.theme("clear")
        plotext.plot_size(width, height)
        plotext.ylim(0, 1)
        plotext.plot(self.steps, self.rewards, marker="braille")
        plotext.title("mean reward")
        plotext.xlabel("step")
        return str(plotext.uncolorize(plotext.build()))


def read_curve(view: ViewClient, run_id: str) -> LearningCurve:
    """The curve of a run, as its ledger has it."""
    rows = view.query(
        "SELECT run_id, step, metrics FROM training_steps WHERE outcome IN ('updated', 'unchanged') ORDER BY step",
        at_least="now",
    ).rows
    rows = [row[1:] for row in rows if row[0] == run_id]
    metrics = [row[1] for row in rows]
    return LearningCurve(
        steps=[int(row[0]) for row in rows],
        rewards=[float(m.get("reward/mean", "nan")) for m in metrics],
        logprob_diffs_max=[float(m.get("logprob_diff_max", "nan")) for m in metrics],
    )


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else float("nan")
