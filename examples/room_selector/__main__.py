"""A prompt that is found by search: ``python -m examples.room_selector``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from examples.program import fresh_settings, run_program

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

DATA_DIR = Path(".lightstream") / "room_selector"


@app.command()
def room_selector(
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of the search.")] = 5,
    seed: Annotated[int, typer.Option(min=0, help="Of everything random.")] = 0,
    data_dir: Annotated[Path, typer.Option(help="Emptied first.")] = DATA_DIR,
) -> None:
    """Search for the prompt with which the model picks the right room, and show what was tried."""
    console = Console()

    def work() -> bool:
        from .run import run_room_selector

        return run_room_selector(fresh_settings(data_dir), console, rounds=rounds, seed=seed)

    run_program(work, data_dir, console)


if __name__ == "__main__":
    app()
