"""``lightstream broker …``: the embedded Kafka on its own."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from lightstream.broker import EmbeddedBrokers, fetch_jars, prepare_quick_start
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import BrokerError, SettingsError

NOT_RUNNING = 3
"""Exit status of `broker status` when none runs, as init scripts have it."""

app = typer.Typer(help="The embedded Kafka broker.", no_args_is_help=True)
console = Console(highlight=False, soft_wrap=True)


def _brokers() -> EmbeddedBrokers:
    return EmbeddedBrokers(Settings.load(), dies_with_us=False)


@app.command()
def start() -> None:
    """Start the broker of this data folder; it keeps running after this command."""
    addresses = _brokers().start()
    console.print(f"The broker{'s run' if ',' in addresses else ' runs'} at {addresses}.")


@app.command()
def stop() -> None:
    """Stop it; its records stay."""
    brokers = _brokers()
    was_running = bool(brokers.services)
    brokers.stop()
    console.print("The broker is stopped." if was_running else "No broker runs with this data folder.")


@app.command()
def status() -> None:
    """Show whether it runs, and its address."""
    brokers = _brokers()
    if not brokers.services:
        console.print("No broker runs with this data folder. Start one with `lightstream broker start`.")
        raise typer.Exit(NOT_RUNNING)
    for service in brokers.services:
        console.print(f"The {service.name} runs at {service.address} (process {service.pid}).")
    away = [broker.name for broker in brokers.each if not broker.is_running]
    if away:
        console.print(f"{', '.join(away)} does not run. `lightstream broker start` starts it.")


@app.command()
def wipe(
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Stop it and delete all its records."""
    settings = Settings.load()
    if not yes and not typer.confirm(f"Delete all records in {settings.data_dir}/broker?"):
        raise SettingsError("nothing was deleted.", next_step="Use --yes to delete without confirmation.")
    _brokers().wipe()
    console.print("All records of the broker are deleted.")


@app.command()
def fetch() -> None:
    """Download Kafka now, and prepare it, so that later starts need no network and half the time."""
    settings = Settings.load()
    jars = fetch_jars(settings)
    console.print(f"{len(jars)} files of Kafka are in {jars[0].parent}.")
    try:
        prepare_quick_start(settings)
    except BrokerError as error:
        console.print(f"It could not be prepared, so a start will take twice as long: {error}")
