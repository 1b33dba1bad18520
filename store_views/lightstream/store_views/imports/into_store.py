"""Traces into a store: each becomes a finished rollout."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass

from lightstream.schemas.errors import StoreError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import RolloutConfig

from .merging import merged
from .trace import ImportedTrace

__all__ = ["ImportReport", "import_traces"]

NO_DEADLINES = RolloutConfig(timeout_seconds=math.inf, unresponsive_seconds=math.inf)
"""An import that was interrupted can be finished however long after: until then, nobody is silent or late."""

AT_ONCE_MAX = 32
"""Rollouts under way; each waits for three verdicts of the life cycle."""


@dataclass(slots=True)
class ImportReport:
    """How many traces became rollouts, with how many spans; and how many were there already.

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

    Raises:
        ServiceUnavailableError: the store's cluster does not answer. What was imported stays.
        StoreError: somebody else ended a rollout meanwhile.
    """
    report = ImportReport()
    gate = asyncio.Semaphore(AT_ONCE_MAX)

    async def one(trace: ImportedTrace) -> None:
        async with gate:
            rollout_id = f"{run_id}-{trace.trace_id}"
            attempt_id = await _attempt_of(store, rollout_id, trace, run_id)
            if attempt_id is None:
                report.known += 1
                missing = await _missing(store, rollout_id, trace)
                report.incomplete += missing > 0
                report.spans_missing += missing
                return
            update = {"rollout_id": rollout_id, "attempt_id": attempt_id}
            spans = [
                span.model_copy(update={**update, "sequence_id": number})
                for number, span in enumerate(trace.spans, start=1)
            ]
            await store.add_many_spans(spans)
            ended = await store.update_attempt(rollout_id, attempt_id, status="succeeded")
            if ended.status != "succeeded":
                raise StoreError(f"{rollout_id} is {ended.status}: somebody else ended it during the import")
            report.rollouts += 1
            report.spans += len(spans)

    await asyncio.gather(*map(one, merged(traces)))
    return report


async def _missing(store: LightningStore, rollout_id: str, trace: ImportedTrace) -> int:
    """How many spans of the trace its rollout lacks."""
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
