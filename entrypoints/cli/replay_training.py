"""``lightstream replay --train``: a run's training steps again, compared with the committed ones."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from lightstream.runtime.settings import Settings

from .load import needs

DIFFERENCES_SHOWN = 10

console = Console(highlight=False)


def run_replay_training(settings: Settings, run_id: str, out: Path | None) -> None:
    """Make the steps again, and print the differences; exits with 1 if there are any.

    Raises:
        TrainingError: the run cannot be made again.
        ServiceUnavailableError: Kafka does not answer.
    """
    with needs("train", "view"):
        from lightstream.trainers.algorithms.replaying import replay_training
        from lightstream.trainers.run.progress import Progress
    folder = out or settings.data_dir.absolute() / "replayed" / run_id
    result = replay_training(settings, run_id, folder, progress=Progress(partial(console.print, soft_wrap=True)))
    steps = f"{len(result.steps)} steps of run {run_id}"
    if result.differing:
        table = Table(title=f"Metrics that differ, of {len(result.differing)} steps")
        for heading in ("step", "metric", "committed", "now"):
            table.add_column(heading)
        for step, metrics in list(result.differing.items())[:DIFFERENCES_SHOWN]:
            for name, (before, now) in metrics.items():
                table.add_row(str(step), name, f"{before:.9g}", f"{now:.9g}")
        console.print(table)
    else:
        console.print(f"{steps} were made again; all metrics are the committed ones.", soft_wrap=True)
    if result.other_weights:
        console.print(f"The weights after steps {_listed(result.other_weights)} are not the committed ones.")
    elif result.compared:
        console.print(f"The weights after steps {_listed(result.compared)} are the committed ones to the bit.")
    console.print(f"The weights after the last step are in {result.weights}.", soft_wrap=True)
    if result.differing or result.other_weights:
        raise typer.Exit(1)


def _listed(steps: list[int]) -> str:
    return ", ".join(map(str, steps))
