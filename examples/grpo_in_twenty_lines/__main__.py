"""GRPO in twenty lines, trained: ``python -m examples.grpo_in_twenty_lines``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from examples.program import fresh_settings, run_program

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

DATA_DIR = Path(".lightstream") / "grpo_in_twenty_lines"


@app.command()
def grpo_in_twenty_lines(
    steps: Annotated[int, typer.Option(min=5, help="Training steps.")] = 30,
    built_in: Annotated[bool, typer.Option("--built-in", help="Train by VERL, to compare.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of everything random.")] = 0,
    data_dir: Annotated[Path, typer.Option(help="Emptied first.")] = DATA_DIR,
) -> None:
    """Start everything, train until the model says in which drawer a thing is, and show the curve."""
    console = Console()

    def work() -> bool:
        from .run import run_grpo

        return run_grpo(fresh_settings(data_dir), console, steps=steps, seed=seed, built_in=built_in)

    run_program(work, data_dir, console)


if __name__ == "__main__":
    app()
