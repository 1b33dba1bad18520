"""Traces into a store: each becomes a finished rollout."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lightstream.schemas.errors import ServiceUnavailableError, StoreError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import RolloutConfig, Span

from .trace import ImportedTrace

__all__ = ["ImportReport", "import_traces"]

logger = logging.getLogger(__name__)

NO_DEADLINES = RolloutConfig(timeout_seconds=math.inf, unresponsive_seconds=math.inf)
"""An import that was interrupted can be finished however long after: until then, nobody is silent or late."""

AT_ONCE_MAX = 32
"""Rollouts under way; each waits for three verdicts of the life cycle."""


@dataclass(slots=True)
class ImportReport:
    """Counts of traces that became rollouts, of their spans, and of those that were there already.

    Attributes:
        incomplete: of those that were there, how many lack spans of the trace.
        spans_missing: how many spans these lack. They are not imported: the rollout is over.
    """

    rollouts: int = 0
    spans: int = 0
    known: int = 0
    incomplete: int = 0
    spans_missing: int = 0


async def import_traces(store: LightningStore, traces: Sequence[ImportedTrace], run_id: str) -> ImportReport:
    """Make a succeeded rollout from each trace. Its id comes from run and trace, so importing again adds nothing.

    Spans get sequence ids in their order; the assembler takes them from there as it takes those of agents.

    A trace that fails stops no other: the first error is raised when all are done, the others are logged. What was
    imported stays. The rollout of a trace that failed may stay open: importing again continues it.

    Raises:
        ServiceUnavailableError: the store's cluster does not answer. Traces that were not begun are not tried; this is
            raised before other errors.
        StoreError: a trace has something that the store does not take, or somebody else ended its rollout meanwhile.
    """
    report = ImportReport()
    gate = asyncio.Semaphore(AT_ONCE_MAX)
    away = False

    async def one(trace: ImportedTrace) -> None:
        nonlocal away
        async with gate:
            if away:
                return
            try:
                await _import_one(store, trace, run_id, report)
            except ServiceUnavailableError:
                away = True
                raise

    all_traces = merged(traces)
    outcomes = await asyncio.gather(*map(one, all_traces), return_exceptions=True)
    failed = [(trace, error) for trace, error in zip(all_traces, outcomes, strict=True) if error is not None]
    failed.sort(key=lambda pair: not isinstance(pair[1], ServiceUnavailableError))
    for trace, error in failed[1:]:
        logger.warning("trace %s was not imported: %s", trace.trace_id, error)
    if failed:
        raise failed[0][1]
    return report


async def _import_one(store: LightningStore, trace: ImportedTrace, run_id: str, report: ImportReport) -> None:
    """Import a trace, and count it."""
    rollout_id = f"{run_id}-{trace.trace_id}"
    attempt_id = await _attempt_of(store, rollout_id, trace, run_id)
    if attempt_id is None:
        missing = await _missing(store, rollout_id, trace)
        report.known += 1
        report.incomplete += missing > 0
        report.spans_missing += missing
        return
    update = {"rollout_id": rollout_id, "attempt_id": attempt_id}
    spans = [
        span.model_copy(update={**update, "sequence_id": number}) for number, span in enumerate(trace.spans, start=1)
    ]
    await store.add_many_spans(spans)
    ended = await store.update_attempt(rollout_id, attempt_id, status="succeeded")
    if ended.status != "succeeded":
        raise StoreError(f"{rollout_id} is {ended.status}: somebody else ended it during the import")
    report.rollouts += 1
    report.spans += len(spans)


async def _missing(store: LightningStore, rollout_id: str, trace: ImportedTrace) -> int:
    """Counts the spans of the trace that its rollout lacks."""
    held = {(span.trace_id, span.span_id) for span in await store.query_spans(rollout_id)}
    return len({(span.trace_id, span.span_id) for span in trace.spans} - held)


async def _attempt_of(store: LightningStore, rollout_id: str, trace: ImportedTrace, run_id: str) -> str | None:
    """The attempt to fill: a new one, or that of an import which was interrupted; ``None`` where it is over."""
    try:
        started = await store.start_rollout(
            trace.task, mode="train", rollout_id=rollout_id, run_id=run_id, config=NO_DEADLINES
        )
    except StoreError:
        attempt = await store.get_latest_attempt(rollout_id)
        if attempt is None:
            raise
        return attempt.attempt_id if attempt.status in _OPEN else None
    return started.attempt.attempt_id


_OPEN = ("preparing", "running", "unresponsive")


def merged(traces: Iterable[ImportedTrace]) -> list[ImportedTrace]:
    """Each trace once, with the spans of all that have its id. ``traces`` are unchanged.

    A span that is there twice counts once. Spans of several files are in the order in which they ended, those without
    a time behind them.
    """
    by_id: dict[str, list[ImportedTrace]] = {}
    for trace in traces:
        by_id.setdefault(trace.trace_id, []).append(trace)
    return [parts[0] if len(parts) == 1 else _one(parts) for parts in by_id.values()]


def _one(parts: list[ImportedTrace]) -> ImportedTrace:
    spans: list[Span] = []
    by_span_id: dict[str, list[Span]] = {}
    for span in (span for part in parts for span in part.spans):
        known = by_span_id.setdefault(span.span_id, [])
        if span not in known:
            known.append(span)
            spans.append(span)
    spans.sort(key=_ended)
    task = next((part.task for part in parts if part.task is not None), None)
    return ImportedTrace(parts[0].trace_id, task, spans, {score for part in parts for score in part.scores})


def _ended(span: Span) -> float:
    return span.end_time or span.start_time or math.inf
