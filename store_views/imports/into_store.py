"""Traces into a store: each becomes a finished rollout."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from lightstream.schemas.errors import ServiceUnavailableError, StoreError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import RolloutConfig

from .trace import ImportedTrace, merged

logger = logging.getLogger(__name__)

NO_DEADLINES = RolloutConfig(timeout_seconds=math.inf, unresponsive_seconds=math.inf)
"""An import that was interrupted can be finished however long after: until then, nobody is silent or late."""

AT_ONCE_MAX = 32
"""Rollouts under way; each waits for three verdicts of the life cycle."""


@dataclass(slots=True)
class ImportReport:
    """Counts of traces that became rollouts, of their spans, and of known ones.

    Attributes:
        incomplete: of those that were there, how many lack spans of the trace.
        spans_missing: how many spans these lack. They are not imported: the rollout is over.
    """

    rollouts: int = 0
    spans: int = 0
    known: int = 0
    incomplete: int = 0
    spans_missing: int = 0


async def import_traces(
    store: LightningStore,
    traces: Iterable[ImportedTrace],
    run_id: str,
    progress: Callable[[int], None] = lambda _: None,
) -> ImportReport:
    """Make a succeeded rollout from each trace. Its id comes from run and trace, so importing again adds nothing.

    A trace of a list may be there in several parts. An iterator gives each trace whole; it is taken as far as there is
    work for, so that few are held.

    Spans get sequence ids in their order; the assembler takes them from there as it takes those of agents.

    A trace that fails stops no other: the first error is raised when all are done, the others are logged. What was
    imported stays. The rollout of a trace that failed may stay open: importing again continues it.

    Args:
        progress: is told how many traces are done so far.

    Raises:
        ServiceUnavailableError: the store's cluster does not answer. Traces that were not begun are not tried; this is
            raised before other errors.
        StoreError: a trace has something that the store does not take, or somebody else ended its rollout meanwhile.
    """
    report = ImportReport()
    failed: list[tuple[str, BaseException]] = []
    waiting = iter(merged(traces) if isinstance(traces, Sequence) else traces)
    done = 0

    async def work() -> None:
        nonlocal done
        for trace in waiting:
            if any(isinstance(error, ServiceUnavailableError) for _, error in failed):
                return
            try:
                await _import_one(store, trace, run_id, report)
            except Exception as error:  # noqa: BLE001  # one trace's failure stops no other; raised below
                failed.append((trace.trace_id, error))
            done += 1
            progress(done)

    await asyncio.gather(*(work() for _ in range(AT_ONCE_MAX)))
    failed.sort(key=lambda pair: not isinstance(pair[1], ServiceUnavailableError))
    for trace_id, error in failed[1:]:
        logger.warning("trace %s was not imported: %s", trace_id, error)
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
    stored = {(span.trace_id, span.span_id) for span in await store.query_spans(rollout_id)}
    return len({(span.trace_id, span.span_id) for span in trace.spans} - stored)


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
