"""``lightstream prices``: the cost of models by token, for the view ``costs``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import NotFoundError, SettingsError

from .load import needs
from .rows import console_for_rows, print_rows

if TYPE_CHECKING:
    from lightstream.store_views.prices import Price

app = typer.Typer(
    help="Show, set and load the prices of models. The view `costs` has the cost of each call.",
    invoke_without_command=True,
)
console = Console(highlight=False)

Model = Annotated[str, typer.Argument(help="The model; a name without a version is for all its versions.")]


@app.callback()
def prices(context: typer.Context) -> None:
    """Show the prices that were given. `lightstream sql "FROM prices"` has those of public models too."""
    if context.invoked_subcommand is not None:
        return
    path, given = _given()
    rows = [[price.model, price.prompt_price, price.response_price, price.cached_price] for price in given.values()]
    print_rows(console_for_rows(), ["model", "prompt", "response", "cached prompt"], rows)
    console.print(f"Per million tokens, of {path}.", soft_wrap=True)


@app.command(name="set")
def set_(
    model: Model,
    prompt: Annotated[float, typer.Option(min=0, help="Price of a million prompt tokens.")],
    response: Annotated[float, typer.Option(min=0, help="Price of a million response tokens.")],
    cached: Annotated[
        float | None, typer.Option(min=0, help="Price of a million prompt tokens from the server's cache.")
    ] = None,
) -> None:
    """Set the price of a model."""
    with needs("view"):
        from lightstream.store_views.prices import Price, write_prices
    path, given = _given(changing=True)
    write_prices(path, {**given, model: Price(model, prompt, response, cached)}.values())
    console.print(f"{model} has a price in {path}; a running view takes it within a second or two.", soft_wrap=True)


@app.command()
def remove(model: Model) -> None:
    """Remove the price of a model."""
    with needs("view"):
        from lightstream.store_views.prices import write_prices
    path, given = _given(changing=True)
    if model not in given:
        raise NotFoundError(f"{path} has no price of {model!r}.", next_step="`lightstream prices` shows its prices.")
    write_prices(path, [price for name, price in given.items() if name != model])
    console.print(f"{model} has no price in {path} any more.", soft_wrap=True)


@app.command()
def load(
    file: Annotated[
        Path, typer.Argument(help="CSV (model,prompt_price,response_price,cached_price), or JSON as LiteLLM has it.")
    ],
) -> None:
    """Add the prices of a file. They replace earlier prices of the same models."""
    with needs("view"):
        from lightstream.store_views.prices import read_prices, write_prices
    found = read_prices(file)
    path, given = _given(changing=True)
    write_prices(path, {**given, **found}.values())
    console.print(f"{len(found):,} prices of {file} are in {path}.", soft_wrap=True)


def _given(*, changing: bool = False) -> tuple[Path, dict[str, Price]]:
    """The file of prices, and those it has.

    Raises:
        SettingsError: it is no file of prices; or it is to be changed, and the view is on another machine.
    """
    with needs("view"):
        from lightstream.store_views.prices import prices_path, read_prices
    settings = Settings.load()
    path = prices_path(settings)
    if changing and settings.view_url is not None:
        raise SettingsError(
            f"the view at {settings.view_url} reads the prices of its own machine, not {path}.",
            next_step="Run this command there, or put a file at its LIGHTSTREAM_PRICES_FILE.",
        )
    return path, read_prices(path) if path.exists() else {}
