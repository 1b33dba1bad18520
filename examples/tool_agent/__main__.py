"""An agent that calls a tool, trained: ``python -m examples.tool_agent``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from examples.program import fresh_settings, run_program

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

DATA_DIR = Path(".lightstream") / "tool_agent"


@app.command()
def tool_agent(
    steps: Annotated[int, typer.Option(min=1, help="Training steps at most.")] = 120,
    vllm_python: Annotated[
        Path | None,
        typer.Option(help="Python of an environment with vLLM, which samples then in place of the policy server."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 0,
    data_dir: Annotated[Path, typer.Option(help="Emptied first.")] = DATA_DIR,
) -> None:
    """Start everything, train until the model calls the right tool and says what it says, and show the curve."""
    console = Console()

    def work() -> bool:
        from .run import run_tool_agent

        return run_tool_agent(fresh_settings(data_dir), console, steps=steps, seed=seed, vllm_python=vllm_python)

    run_program(work, data_dir, console)


if __name__ == "__main__":
    app()
