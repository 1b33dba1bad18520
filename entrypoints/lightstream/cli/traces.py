"""``lightstream import`` and ``lightstream attach-trace`` bring traces into a run or a rollout."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from lightstream.runtime.settings import Settings

from .formats import TraceFormat
from .load import needs
from .view_query import PATIENCE_S

if TYPE_CHECKING:
    from lightstream.store_views.imports import ImportedTrace, ImportReport

__all__ = ["run_attach_trace", "run_import"]

console = Console(highlight=False)


def run_import(settings: Settings, files: Sequence[Path], run_id: str, kind: TraceFormat, score: str | None) -> None:
    """Import the files. All are read before the first trace is imported; a trace may be in several of them.

    Raises:
        SettingsError: a file cannot be read or understood, or none has the score; nothing was imported.
        ServiceUnavailableError: Kafka or the worker does not answer; what was imported stays. A repeat continues.
        StoreError: a trace cannot be stored, or somebody else ended its rollout; all others were imported.
    """
    with needs("view"):
        from lightstream.store_views.imports import check_score, read_traces
    traces = [trace for file in files for trace in read_traces(file, kind.value, score)]
    check_score(traces, score)
    report = asyncio.run(_import(settings, traces, run_id))
    made = f"{report.rollouts:,} rollouts with {report.spans:,} spans in run {run_id}"
    console.print(f"{made}; {report.known:,} were already there.")
    if report.incomplete:
        console.print(
            f"{report.incomplete:,} of these lack {report.spans_missing:,} spans of the files. They were not imported: "
            "a rollout that is over takes no more. Import all files of a trace together, into another run."
        )


async def _import(settings: Settings, traces: list[ImportedTrace], run_id: str) -> ImportReport:
    with needs("view"):
        from lightstream.store_views.imports import import_traces
        from lightstream.store_views.stores import KafkaLightningStore
    store = KafkaLightningStore(settings)
    try:
        await store.start()
        return await import_traces(store, traces, run_id)
    finally:
        await store.close()


def run_attach_trace(settings: Settings, trace_id: str, rollout_id: str, attempt_id: str | None) -> None:
    """Attach a trace to an attempt, and print what follows from it.

    Raises:
        NotFoundError, StoreError: there is no such trace or attempt, or the trace belongs to another.
        PublishError, ServiceUnavailableError: Kafka or the view did not answer.
    """
    with needs("view"):
        from lightstream.store_views.attach_trace import attach_trace
    done = attach_trace(settings, trace_id, rollout_id, attempt_id, patience_s=PATIENCE_S)
    attempt = f"attempt {escape(done.attempt_id)} of rollout {escape(done.rollout_id)}"
    if not done.spans:
        console.print(f"All spans of trace {done.trace_id} belong to {attempt} already.", soft_wrap=True)
        return
    console.print(f"{done.spans} spans of trace {done.trace_id} now belong to {attempt}.", soft_wrap=True)
    if done.is_open:
        console.print("Its trajectory will have them. Attach it again for spans that come later.", soft_wrap=True)
    else:
        console.print("The attempt is over: a revision of its trajectory has them, unless it began too long ago.")
