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

RUNS_SQL = """
SELECT coalesce(r.run_id, t.run_id) AS run, t.trainer_id, t.step,
    coalesce(waiting, 0), coalesce(running, 0), coalesce(succeeded, 0), coalesce(failed, 0), coalesce(cancelled, 0),
    s.changed
FROM (
    SELECT run_id,
        count(*) FILTER (status IN ('queuing', 'requeuing')) AS waiting,
        count(*) FILTER (status IN ('preparing', 'running')) AS running,
        count(*) FILTER (status = 'succeeded') AS succeeded,
        count(*) FILTER (status = 'failed') AS failed,
        count(*) FILTER (status = 'cancelled') AS cancelled
    FROM rollouts GROUP BY run_id
) r
LEFT JOIN (SELECT run_id, max(logged_unix_nano) AS changed FROM rollout_states WHERE verdict_outcome = 'applied'
    GROUP BY run_id) s ON r.run_id = s.run_id
FULL JOIN (SELECT run_id, string_agg(DISTINCT trainer_id, ', ') AS trainer_id, max(step) AS step
    FROM training_steps GROUP BY run_id) t ON r.run_id = t.run_id
ORDER BY s.changed DESC NULLS LAST, run
"""
"""The time of a run's last change is the log's: a Runner's clock may be wrong."""


@app.callback()
def runs(context: typer.Context) -> None:
    """Show the runs: trainer, last step, what became of the rollouts, and how long ago one of them last changed."""
    if context.invoked_subcommand is not None:
        return
    rows = ask_view(Settings.load(), RUNS_SQL)["rows"]
    names = ("run", "trainer", "last step", "waiting", "running", "succeeded", "failed", "cancelled", "last activity")
    table = Table(caption="An empty name: rollouts that belong to no run.", caption_justify="left")
    for name in names:
        table.add_column(name, justify="left" if name in ("run", "trainer") else "right", overflow="fold")
    now = time.time_ns()
    for *values, changed in rows:
        table.add_row(*("" if value is None else escape(str(value)) for value in values), _age(changed, now))
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
    query = (
        "SELECT rollout_id FROM rollouts WHERE run_id = ? AND rollout_id > ? "
        "AND status NOT IN ('succeeded', 'failed', 'cancelled') ORDER BY rollout_id LIMIT ?"
    )
    answer = ask_view(settings, query, params=[run, after, ROLLOUTS_PER_PAGE])
    return [rollout_id for (rollout_id,) in answer["rows"]]


def _age(unix_nano: int | None, now_unix_nano: int) -> str:
    if unix_nano is None:
        return ""
    seconds = max(0, now_unix_nano - unix_nano) // NANOS_PER_SECOND
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"
