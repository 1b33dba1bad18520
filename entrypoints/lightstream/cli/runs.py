"""``lightstream runs``: which runs there are, what waits of each; and the end of what a dead run left."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lightstream.runtime.clock import NANOS_PER_SECOND
from lightstream.runtime.logs import log_to_stderr
from lightstream.runtime.settings import Settings

from .load import needs
from .view_query import ask_view

__all__ = ["app"]

app = typer.Typer(help="Show the runs; cancel what is left of one.", invoke_without_command=True)
console = Console(highlight=False)

ROLLOUTS_PER_PAGE = 1000
"""So many are cancelled at a time."""

RUNS_SHOWN_MAX = 10_000


@app.callback()
def runs(context: typer.Context) -> None:
    """Show the runs: trainer, last step, what became of the rollouts, and how long ago one of them last changed."""
    if context.invoked_subcommand is not None:
        return
    with needs("view"):
        from lightstream.store_views.queries import named_query
    sql, values = named_query("runs").statement({"limit": RUNS_SHOWN_MAX})
    answer = ask_view(Settings.load(), sql, params=values)
    rows = [dict(zip(answer["columns"], row, strict=True)) for row in answer["rows"]]
    names = ("run", "trainer", "last step", "waiting", "running", "succeeded", "failed", "cancelled", "last activity")
    table = Table(caption="An empty name: rollouts that belong to no run.", caption_justify="left")
    for name in names:
        table.add_column(name, justify="left" if name in ("run", "trainer") else "right", overflow="fold")
    now = time.time_ns()
    for row in rows:
        counts = [row[name] or 0 for name in ("waiting", "running", "succeeded", "failed", "cancelled")]
        shown = [row["run_id"], row["trainers"], row["step"], *counts]
        changed = row["changed_unix_nano"]
        table.add_row(
            *("" if value is None else escape(str(value)) for value in shown),
            _age(None if changed is None else int(changed), now),
        )
    console.print(table)


@app.command()
def cancel(run: Annotated[str, typer.Argument(help='The run; "" for rollouts that belong to none.')]) -> None:
    """Cancel every rollout of a run that is not over."""
    settings = Settings.load()
    log_to_stderr(settings, logging.WARNING)
    done = asyncio.run(_cancel(settings, run))
    console.print(f"{done:,} rollouts of run {escape(repr(run))} were cancelled.", soft_wrap=True)


async def _cancel(settings: Settings, run: str) -> int:
    with needs("view"):
        from lightstream.store_views.stores import KafkaLightningStore
    store = KafkaLightningStore(settings)
    await store.start()
    try:
        done, last = 0, ""
        while ids := await asyncio.to_thread(_open_rollouts, settings, run, last):
            cancelled: list[Any] = await asyncio.gather(
                *(store.cancel_rollout(rollout_id, "its run was cancelled") for rollout_id in ids)
            )
            done += sum(rollout.status == "cancelled" for rollout in cancelled)
            last = ids[-1]
        return done
    finally:
        await store.close()


def _open_rollouts(settings: Settings, run: str, after: str) -> list[str]:
    """Some of those that are not over, in the order of their ids."""
    with needs("view"):
        from lightstream.store_views.queries import named_query
    sql, values = named_query("open-rollouts").statement({"run": run, "after": after, "limit": ROLLOUTS_PER_PAGE})
    answer = ask_view(settings, sql, params=dict(values))
    return [rollout_id for (rollout_id,) in answer["rows"]]


def _age(unix_nano: int | None, now_unix_nano: int) -> str:
    if unix_nano is None:
        return ""
    seconds = max(0, now_unix_nano - unix_nano) // NANOS_PER_SECOND
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"
