"""The frame of every example: a data folder of its own, and an exit status that says how it went."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from lightstream.runtime.interrupts import Interrupts
from lightstream.runtime.services import running_services
from lightstream.schemas.errors import LightstreamError, ServiceUnavailableError, SettingsError
from lightstream.trainers import Settings

__all__ = ["fresh_settings", "program", "run_program"]

PASSED, FAILED, INTERRUPTED = 0, 1, 130
OURS = ("broker", "run", "logs")
"""A file that every data folder of ours has from the first second on."""


def program(name: str, run: Callable[..., bool], *, steps: int) -> None:
    """The command line of an example that trains: ``--steps``, ``--seed`` and ``--data-dir``.

    Args:
        name: of the example; its data folder is called so.
        run: called with the settings, a console, ``steps`` and ``seed``; returns whether what it promises holds.
        steps: unless others are asked for.
    """
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    console = Console()

    @app.command(name, help=f"Start everything, train, and show the curve (examples/{name}/README.md).")
    def _(
        steps: Annotated[int, typer.Option(min=5, help="Training steps at most.")] = steps,
        seed: Annotated[int, typer.Option(min=0, help="Of everything random.")] = 0,
        data_dir: Annotated[Path, typer.Option(help="Emptied first.")] = Path(".lightstream") / name,
    ) -> None:
        run_program(lambda: run(fresh_settings(data_dir), console, steps=steps, seed=seed), data_dir, console)

    app()


def fresh_settings(data_dir: Path) -> Settings:
    """The settings of the environment, with an empty data folder.

    Raises:
        SettingsError: a setting is wrong, or the folder holds something that is not ours; nothing is deleted.
        ServiceUnavailableError: something still runs with that folder; nothing is deleted.
    """
    settings = Settings.load(data_dir=data_dir)
    running = running_services(settings)
    if running:
        names = ", ".join(f"{service.name} (process {service.pid})" for service in running)
        raise ServiceUnavailableError(f"something still runs with {data_dir}: {names}.", next_step="Stop it first.")
    if data_dir.exists() and not data_dir.is_dir():
        raise SettingsError(f"--data-dir {data_dir} is not a folder.", next_step="Name another one.")
    if data_dir.exists() and any(data_dir.iterdir()) and not any((data_dir / name).is_dir() for name in OURS):
        raise SettingsError(
            f"--data-dir {data_dir} holds other files, and it would be emptied.", next_step="Name another folder."
        )
    shutil.rmtree(data_dir, ignore_errors=True)
    return settings


def run_program(work: Callable[[], bool], data_dir: Path, console: Console) -> None:
    """Do the work, then end the process: 0 if it returned true, 1 if not or on an error, 130 after Ctrl-C.

    SIGTERM, and SIGHUP when the terminal is closed, are as good as Ctrl-C.

    Raises:
        typer.Exit: always.
    """
    try:
        with Interrupts(signal.SIGTERM, signal.SIGHUP) as interrupts:
            passed = work()
            interrupts.check()
    except KeyboardInterrupt:
        console.print("Stopped. No process is left behind; what was done is in", str(data_dir))
        raise typer.Exit(INTERRUPTED) from None
    except LightstreamError as error:
        console.print(f"[bold red]Error:[/] {escape(str(error))}", soft_wrap=True, highlight=False)
        raise typer.Exit(FAILED) from error
    raise typer.Exit(PASSED if passed else FAILED)
