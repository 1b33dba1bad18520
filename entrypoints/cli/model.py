"""``lightstream model``: models made on the spot."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lightstream.schemas.errors import SettingsError

from .load import needs

app = typer.Typer(help="Make a small model.", no_args_is_help=True)


@app.callback()
def model() -> None:
    """Keeps ``tiny`` a command of its own."""


@app.command()
def tiny(
    path: Annotated[Path, typer.Argument(help="Folder to make.")],
    hidden_size: Annotated[int, typer.Option(help="A multiple of 32.")] = 64,
    layers: Annotated[int, typer.Option(min=1, help="Transformer layers.")] = 2,
    seed: Annotated[int, typer.Option(help="Of the random weights.")] = 0,
) -> None:
    """Write a tiny random model (Qwen2, one token a byte, with a chat template), without any download."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise SettingsError(f"{path} exists and is not an empty folder.", next_step="Name a new folder.")
    with needs("train"):
        from lightstream.trainers.run.model.tiny_model import make_tiny_model
    try:
        folder = make_tiny_model(path, hidden_size=hidden_size, layers=layers, seed=seed)
    except ValueError as error:
        raise SettingsError(f"{error}.") from error
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f'{folder}: {size / 1e6:.1f} MB. VERL(model="{folder}") trains it.')
