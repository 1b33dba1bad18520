"""The demonstration: ``python -m examples.tool_router`` (``make demo``)."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from lightstream.schemas.errors import LightstreamError
from lightstream.schemas.services import running_services
from lightstream.schemas.settings import Settings

from .options import Options

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

DATA_DIR = Path(".lightstream") / "demo"


@app.command()
def demo(
    steps: Annotated[int, typer.Option(help="Training steps.")] = Options.steps,
    groups: Annotated[int, typer.Option(help="Tasks per step.")] = Options.groups,
    samples: Annotated[int, typer.Option(help="Rollouts per task.")] = Options.samples,
    model: Annotated[
        str, typer.Option(help="Folder or name of a Hugging Face model; by default a tiny one is made on the spot.")
    ] = "",
    learning_rate: Annotated[float, typer.Option(help="Of the optimiser.")] = Options.learning_rate,
    max_tokens: Annotated[int, typer.Option(help="Length of an answer, in tokens.")] = Options.max_tokens,
    seed: Annotated[int, typer.Option(help="Of everything random.")] = Options.seed,
    data_dir: Annotated[Path, typer.Option(help="Emptied first.")] = DATA_DIR,
) -> None:
    """Start everything, train the agent, show the curve, and check that nothing was lost."""
    from .run import run_demo

    options = Options(
        steps=steps,
        groups=groups,
        samples=samples,
        model=model,
        learning_rate=learning_rate,
        max_tokens=max_tokens,
        seed=seed,
    )
    console = Console()
    settings = Settings.load(data_dir=data_dir)
    running = running_services(settings)
    if running:
        console.print(
            f"[red]Something still runs with {data_dir}: "
            f"{', '.join(f'{service.name} (process {service.pid})' for service in running)}. Stop it first.[/red]"
        )
        raise typer.Exit(2)
    shutil.rmtree(data_dir, ignore_errors=True)
    try:
        passed = run_demo(settings, options, console)
    except KeyboardInterrupt:
        console.print("Stopped. No process is left behind; what was done is in", str(data_dir))
        raise typer.Exit(130) from None
    except LightstreamError as error:
        console.print(f"[red]{error}[/red]")
        raise typer.Exit(1) from error
    raise typer.Exit(0 if passed else 1)


@app.command(hidden=True)
def train(options: str) -> None:
    """The trainer's process. ``options`` is what the demonstration was started with, as JSON."""
    from .train import train_until_done

    train_until_done(Settings.load(), Options.from_json(options))


if __name__ == "__main__":
    if len(sys.argv) == 1 or sys.argv[1].startswith("-"):
        sys.argv.insert(1, "demo")
    app()
