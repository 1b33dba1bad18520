"""``lightstream import`` and ``lightstream attach-trace`` bring traces into a run or a rollout."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
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

console = Console(highlight=False)
notes = Console(highlight=False, stderr=True)


PROGRESS_INTERVAL_S = 2.0
FORM_NAMES = {"otlp": "OTLP", "atif": "ATIF", "phoenix": "of Phoenix", "langfuse": "of Langfuse"}


def run_import(settings: Settings, files: Sequence[Path], run_id: str, kind: TraceFormat, score: str | None) -> None:
    """Import the files. All are read before the first trace is imported; a trace may be in several of them.

    Raises:
        SettingsError: a file cannot be read or understood, or none has the score; nothing was imported.
        ServiceUnavailableError: Kafka or the worker does not answer; what was imported stays. A repeat continues.
        StoreError: a trace cannot be stored, or somebody else ended its rollout; all others were imported.
    """
    with needs("view"):
        from lightstream.store_views.imports import Spool, check_score_name, read_files
    progress = _Progress(files)
    with Spool() as spool:
        kinds = read_files(spool, files, kind.value, progress.read)
        names = spool.score_names()
        check_score_name(names, score)
        if score is None and len(names) > 1:
            for _ in spool.traces(None):  # a trace of which the reward is not clear is told before any is imported
                pass
        progress.total = len(spool)
        report = asyncio.run(_import(settings, spool.traces(score), run_id, progress.imported))
        orphans = spool.orphan_scores()
    for file, found in zip(files, kinds, strict=True):
        console.print(f"{file} is {FORM_NAMES.get(found, found)}.", markup=False, soft_wrap=True)
    summary = f"{report.rollouts:,} rollouts with {report.spans:,} spans in run {run_id}"
    console.print(f"{summary}; {report.known:,} were already there.")
    if report.incomplete:
        console.print(
            f"{report.incomplete:,} of these lack {report.spans_missing:,} spans of the files. They were not imported: "
            "a rollout that is over takes no more. Import all files of a trace together, into another run."
        )
    if orphans:
        console.print(
            f"{orphans:,} scores are of traces that these files do not have, and were left out: import the files of "
            "traces and scores together."
        )


class _Progress:
    """Says on standard error how far an import is, every few seconds."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._sizes = {path: path.stat().st_size for path in files if path.is_file()}
        self._done: dict[Path, int] = {}
        self._next_s = time.monotonic() + PROGRESS_INTERVAL_S
        self.total = 0

    def read(self, path: Path, done_bytes: int) -> None:
        self._done[path] = done_bytes
        if self._is_due():
            read, size = sum(self._done.values()) / MEGABYTE, sum(self._sizes.values()) / MEGABYTE
            notes.print(f"read {read:,.0f} of {size:,.0f} MB", soft_wrap=True)

    def imported(self, done: int) -> None:
        if self._is_due():
            notes.print(f"imported {done:,} of {self.total:,} traces", soft_wrap=True)

    def _is_due(self) -> bool:
        now_s = time.monotonic()
        if now_s < self._next_s:
            return False
        self._next_s = now_s + PROGRESS_INTERVAL_S
        return True


MEGABYTE = 1_000_000


async def _import(
    settings: Settings, traces: Iterator[ImportedTrace], run_id: str, progress: Callable[[int], None]
) -> ImportReport:
    with needs("view"):
        from lightstream.store_views.imports import import_traces
        from lightstream.store_views.stores import KafkaLightningStore
    store = KafkaLightningStore(settings)
    try:
        await store.start()
        return await import_traces(store, traces, run_id, progress)
    finally:
        await store.close()


def run_attach_trace(settings: Settings, trace_id: str, rollout_id: str, attempt_id: str | None) -> None:
    """Attach a trace to an attempt, and print the consequences.

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
