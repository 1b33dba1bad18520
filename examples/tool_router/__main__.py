"""The demonstration: ``python -m examples.tool_router`` (``make demo``)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from examples.program import fresh_settings, run_program
from lightstream.trainers import Settings

from .options import GIVEN_MODEL_LEARNING_RATE, GIVEN_MODEL_MAX_TOKENS, GIVEN_MODEL_STEPS, Options

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

DATA_DIR = Path(".lightstream") / "demo"


@app.command()
def demo(
    steps: Annotated[
        int | None,
        typer.Option(
            help=f"Training steps at most; {Options.steps}, or {GIVEN_MODEL_STEPS} with --model; none with --endpoint."
        ),
    ] = None,
    groups: Annotated[int, typer.Option(help="Tasks per step.")] = Options.groups,
    samples: Annotated[int, typer.Option(help="Rollouts per task.")] = Options.samples,
    model: Annotated[
        str,
        typer.Option(
            help="Folder (or name, org/model) of a Hugging Face model to train; by default a tiny one is made on the "
            "spot. With --endpoint: the name that it serves the model under."
        ),
    ] = "",
    endpoint: Annotated[
        str,
        typer.Option(
            help="Address (…/v1) of an OpenAI-compatible server to use instead. Its weights cannot be updated from "
            "here, so nothing is trained: one step's rollouts are made, recorded and scored."
        ),
    ] = "",
    learning_rate: Annotated[
        float | None,
        typer.Option(
            help=f"Of the optimiser; {Options.learning_rate:g}, or {GIVEN_MODEL_LEARNING_RATE:g} with --model."
        ),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            help=f"Length of an answer, in tokens; {Options.max_tokens}, or {GIVEN_MODEL_MAX_TOKENS} with --model or "
            "--endpoint."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of everything random.")] = Options.seed,
    data_dir: Annotated[Path, typer.Option(help="Emptied first.")] = DATA_DIR,
) -> None:
    """Start everything, train the agent, show the curve, and check that nothing was lost."""
    console = Console()
    options = Options(
        steps=steps or (GIVEN_MODEL_STEPS if model else Options.steps),
        groups=groups,
        samples=samples,
        model=model,
        endpoint=endpoint,
        learning_rate=learning_rate or (GIVEN_MODEL_LEARNING_RATE if model else Options.learning_rate),
        max_tokens=max_tokens or (GIVEN_MODEL_MAX_TOKENS if model or endpoint else Options.max_tokens),
        seed=seed,
    )

    def work() -> bool:
        from .measure import measure_endpoint
        from .run import run_demo
        from .user_model import find_model, find_served_model

        if endpoint:
            served = find_served_model(endpoint, model, Settings.load().llm_upstream_api_key)
            return measure_endpoint(fresh_settings(data_dir), options.with_model(served), console)
        found = find_model(model) if model else ""
        return run_demo(fresh_settings(data_dir), options.with_model(found), console)

    run_program(work, data_dir, console)


@app.command(hidden=True)
def train(options: str) -> None:
    """The trainer's process. ``options`` is what the demonstration was started with, as JSON."""
    from .train import train_until_done

    def work() -> bool:
        train_until_done(Settings.load(), Options.from_json(options))
        return True

    run_program(work, Settings.load().data_dir, Console())


if __name__ == "__main__":
    if len(sys.argv) == 1 or sys.argv[1].startswith("-"):
        sys.argv.insert(1, "demo")
    app()
