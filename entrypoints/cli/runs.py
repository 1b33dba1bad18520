"""``lightstream runs``: the runs, the waiting rollouts of each; and the end of a run's remains."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from lightstream.runtime.clock import NANOS_PER_SECOND
from lightstream.runtime.logs import log_to_stderr
from lightstream.runtime.settings import Settings

from .du import size_text
from .formats import Format
from .load import needs
from .view_query import ask_view

app = typer.Typer(help="Show the runs; cancel or delete one.", invoke_without_command=True)
console = Console(highlight=False)

ROLLOUTS_PER_PAGE = 1000
"""So many are cancelled at a time."""

RUNS_SHOWN_MAX = 10_000
CELL_MARGIN = 3
RUN_WIDTH_MIN = 8
STYLES: Mapping[str, str] = {
    "running": "blue",
    "finished": "green",
    "failed": "red",
    "lost": "red",
    "stopped": "yellow",
}


@app.callback()
def runs(
    context: typer.Context,
    output: Annotated[
        Format, typer.Option("--format", help="Form of the output; JSON has every count.")
    ] = Format.TABLE,
) -> None:
    """Show the runs: the state of each, last step and reward, failed rollouts, and time since its last change."""
    if context.invoked_subcommand is not None:
        return
    rows = all_runs(Settings.load())
    if output is Format.JSON:
        print(json.dumps(rows, indent=2))
        return
    print_runs(console, rows)


def all_runs(settings: Settings, limit: int = RUNS_SHOWN_MAX) -> list[dict[str, Any]]:
    """The rows of the query ``:runs``, the run that changed last first.

    Raises:
        QueryError, ServiceUnavailableError: as :func:`ask_view`.
    """
    with needs("view"):
        from lightstream.store_views.queries import named_query
    sql, values = named_query("runs").statement({"limit": limit})
    answer = ask_view(settings, sql, params=values)
    return [dict(zip(answer["columns"], row, strict=True)) for row in answer["rows"]]


def print_runs(to: Console, rows: Sequence[Mapping[str, Any]]) -> None:
    """A table within 80 columns, where names of runs may be cut, and a line for each run that failed."""
    now = time.time_ns()
    cells = [_cells(row, now) for row in rows]
    names = ("state", "step", "reward", "failed", "age")
    widths = [max([len(name), *(cell[place].cell_len for cell in cells)]) for place, name in enumerate(names, 1)]
    room = to.width - sum(width + CELL_MARGIN for width in widths) - CELL_MARGIN - 1
    table = Table()
    table.add_column("run", overflow="ellipsis", no_wrap=True, max_width=max(RUN_WIDTH_MIN, room))
    for name, width in zip(names, widths, strict=True):
        table.add_column(name, justify="left" if name == "state" else "right", no_wrap=True, min_width=width)
    for cell in cells:
        table.add_row(*cell)
    to.print(table)
    for row in rows:
        if row["state"] == "failed" and row["error"]:
            to.print(Text(f"{row['run_id']} failed: {row['error'].splitlines()[0]}"), soft_wrap=True)


def _cells(row: Mapping[str, Any], now_unix_nano: int) -> list[Text]:
    step, planned, state = row["step"], row["steps_planned"], row["state"] or "-"
    failed, rollouts = row["failed"] or 0, row["rollouts"] or 0
    changed = [int(row[name]) for name in ("changed_unix_nano", "said_unix_nano") if row[name]]
    return [
        Text(row["run_id"] or "(no run)"),
        Text(state, STYLES.get(state, "")),
        Text("-" if step is None else f"{step}/{planned}" if planned else str(step)),
        Text("-" if row["reward"] is None else f"{row['reward']:.4g}"),
        Text(f"{failed}/{rollouts}" if rollouts else "-", "red" if failed else ""),
        Text(_age(max(changed, default=None), now_unix_nano)),
    ]


@app.command()
def cancel(run: Annotated[str, typer.Argument(help='The run; "" for rollouts that belong to none.')]) -> None:
    """Cancel every rollout of a run that is not over."""
    settings = Settings.load()
    log_to_stderr(settings, logging.WARNING)
    done = asyncio.run(_cancel(settings, run))
    console.print(f"{done:,} rollouts of run {escape(repr(run))} were cancelled.", soft_wrap=True)


@app.command()
def delete(
    run: Annotated[str, typer.Argument(help="The run.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a run: its records leave the view, and its checkpoints and large records the disk."""
    settings = Settings.load()
    log_to_stderr(settings, logging.WARNING)
    if not yes:
        typer.confirm(
            f"Delete all records, checkpoints and large records of run {run!r}? Nothing brings them back", abort=True
        )
    from .delete_run import delete_run

    done = delete_run(settings, run)
    console.print(
        f"Run {escape(repr(run))} was deleted: {size_text(done.checkpoint_bytes)} of checkpoints, "
        f"{size_text(done.large_record_bytes)} of large records are free. Views leave its records out (the log names "
        f"{done.rollouts:,} rollouts); the log's bytes go at its retention.",
        soft_wrap=True,
    )


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
        return "-"
    seconds = max(0, now_unix_nano - unix_nano) // NANOS_PER_SECOND
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
