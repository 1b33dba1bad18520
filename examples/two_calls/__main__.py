"""Two LLM calls and a tool in one rollout: ``python -m examples.two_calls``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from examples.program import fresh_settings, run_program

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

DATA_DIR = Path(".lightstream") / "two_calls"


@app.command()
def two_calls(
    steps: Annotated[int, typer.Option(min=1, help="Training steps.")] = 2,
    groups: Annotated[int, typer.Option(min=1, help="Tasks per step.")] = 4,
    samples: Annotated[int, typer.Option(min=2, help="Rollouts per task.")] = 4,
    data_dir: Annotated[Path, typer.Option(help="Emptied first.")] = DATA_DIR,
) -> None:
    """Train for a few steps, show what became of one rollout, and check that every call is accounted for."""
    console = Console()

    def work() -> bool:
        from .run import run_two_calls

        return run_two_calls(fresh_settings(data_dir), console, steps=steps, groups=groups, samples=samples)

    run_program(work, data_dir, console)


if __name__ == "__main__":
    app()
