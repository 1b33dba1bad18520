"""Attaches a trace that named no rollout to a rollout's attempt.

Spans without a rollout are logged under their trace id. Attaching them writes them again, unchanged, under the rollout:
there the assembler and all views find them, and the view hides the first copies. Attaching again adds spans that came
since; those written before are not written again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import groupby

from lightstream.runtime.kafka import KafkaPublisher, PartitionReader, Position, decoded, joined_ranges
from lightstream.runtime.schema_registry import codec_for
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import NotFoundError, PublishError, ServiceUnavailableError, StoreError
from lightstream.schemas.records import SpanRecord
from lightstream.schemas.topics import SPANS

from .client import ViewClient

HEX_DIGITS = frozenset("0123456789abcdef")
TRACE_ID_DIGITS = 32

PLACES_PER_QUERY = 5_000
GROUP_ID = "lightstream-attach-trace"
"""Asked for by the client; never joined, never committed to."""


@dataclass(frozen=True, slots=True)
class AttachedTrace:
    """The trace that was attached, and the attempt that has it now.

    Attributes:
        spans: how many were written now; 0 if all had been attached before.
        is_open: whether the attempt still runs, so that its trajectory will have them; else a revision of it has
            them, unless the attempt began too long ago.
    """

    trace_id: str
    rollout_id: str
    attempt_id: str
    spans: int
    is_open: bool


def attach_trace(
    settings: Settings, trace_id: str, rollout_id: str, attempt_id: str | None = None, *, patience_s: float = 30.0
) -> AttachedTrace:
    """Attach a trace to an attempt; by default to the rollout's latest.

    Args:
        patience_s: seconds that a view which does not answer is waited for.

    Raises:
        NotFoundError: the rollout or attempt does not exist, or no span of the trace is without a rollout.
        StoreError: the trace id is malformed, or the trace is attached to another attempt. Nothing was written.
        PublishError: not all spans became durable; attach again for the rest.
        ServiceUnavailableError: the view or Kafka does not answer.
    """
    trace_id = trace_id.lower()
    if len(trace_id) != TRACE_ID_DIGITS or not HEX_DIGITS.issuperset(trace_id):
        raise StoreError(f"{trace_id!r} is not a trace id: one has {TRACE_ID_DIGITS} hex digits.")
    view = ViewClient(settings, patience_s=patience_s)
    try:
        view.wait_for("now")
        attempt_id, is_open = _attempt(view, rollout_id, attempt_id)
        _refuse_second_attempt(view, trace_id, rollout_id, attempt_id)
        places = _unattached(view, trace_id, rollout_id, attempt_id)
    finally:
        view.close()
    written = _write_again(settings, places, trace_id, rollout_id, attempt_id) if places else 0
    return AttachedTrace(trace_id, rollout_id, attempt_id, written, is_open)


def _attempt(view: ViewClient, rollout_id: str, attempt_id: str | None) -> tuple[str, bool]:
    found = view.query(
        "SELECT attempt_id FROM attempts WHERE rollout_id = $rollout AND attempt_id = coalesce($attempt, attempt_id) "
        "ORDER BY attempt_sequence DESC LIMIT 1",
        params={"rollout": rollout_id, "attempt": attempt_id},
    ).rows
    if not found:
        what = f"rollout {rollout_id!r} has no attempt" + ("" if attempt_id is None else f" {attempt_id!r}")
        raise NotFoundError(f"{what}.", next_step="`lightstream sql 'FROM attempts'` lists them.")
    ((attempt,),) = found
    closed = view.query(
        "SELECT count(*) FROM attempts_closed_raw WHERE rollout_id = ? AND attempt_id = ?", params=[rollout_id, attempt]
    ).scalar()
    return attempt, closed == 0


def _refuse_second_attempt(view: ViewClient, trace_id: str, rollout_id: str, attempt_id: str) -> None:
    others = view.query(
        "SELECT DISTINCT owned.rollout_id, owned.attempt_id FROM spans_raw AS owned JOIN spans_raw AS free "
        "ON free.trace_id = owned.trace_id AND free.span_id = owned.span_id AND free.rollout_id IS NULL "
        "WHERE owned.trace_id = $trace AND owned.rollout_id IS NOT NULL "
        "AND (owned.rollout_id, coalesce(owned.attempt_id, '')) <> ($rollout, $attempt) LIMIT 1",
        params={"trace": trace_id, "rollout": rollout_id, "attempt": attempt_id},
    ).rows
    if others:
        raise StoreError(
            f"trace {trace_id} is attached to attempt {others[0][1]!r} of rollout {others[0][0]!r}; "
            f"it cannot also belong to {attempt_id!r} of {rollout_id!r}."
        )


def _unattached(view: ViewClient, trace_id: str, rollout_id: str, attempt_id: str) -> list[tuple[int, int]]:
    """Places of the spans that are still to be written, in log order; of a repeated span the first."""
    places: list[tuple[int, int]] = []
    total: int = view.query(
        "SELECT count(*) FROM spans_raw WHERE trace_id = ? AND rollout_id IS NULL", params=[trace_id]
    ).scalar()
    if not total:
        raise NotFoundError(
            f"no span of trace {trace_id} is without a rollout.",
            next_step="`lightstream sql 'SELECT DISTINCT trace_id FROM spans WHERE rollout_id IS NULL'` lists them.",
        )
    while True:
        page = view.query(
            "SELECT log_partition, min(log_offset) FROM spans_raw AS free "
            "WHERE trace_id = $trace AND rollout_id IS NULL AND NOT EXISTS (FROM spans_raw AS owned "
            "WHERE owned.trace_id = $trace AND owned.span_id = free.span_id "
            "AND owned.rollout_id = $rollout AND owned.attempt_id = $attempt) "
            "GROUP BY log_partition, span_id ORDER BY ALL LIMIT $limit OFFSET $offset",
            params={
                "trace": trace_id,
                "rollout": rollout_id,
                "attempt": attempt_id,
                "limit": PLACES_PER_QUERY,
                "offset": len(places),
            },
            rows_max=PLACES_PER_QUERY,
        ).rows
        places += [(partition, offset) for partition, offset in page]
        if len(page) < PLACES_PER_QUERY:
            return places


def _write_again(
    settings: Settings, places: Sequence[tuple[int, int]], trace_id: str, rollout_id: str, attempt_id: str
) -> int:
    publisher = KafkaPublisher(settings)
    futures: list[Future[Position]] = []
    try:
        for span in _read(settings, places):
            if span.trace_id != trace_id or span.rollout_id is not None:
                raise _other_log()
            owned = span.model_copy(update={"rollout_id": rollout_id, "attempt_id": attempt_id})
            futures.append(publisher.publish(SPANS, rollout_id, owned))
        for future in futures:
            future.result(settings.publish_timeout_s)
    except TimeoutError as error:
        raise PublishError(f"Kafka did not acknowledge all spans within {settings.publish_timeout_s:g} s.") from error
    finally:
        publisher.close()
    return len(futures)


def _read(settings: Settings, places: Sequence[tuple[int, int]]) -> Iterator[SpanRecord]:
    """The records at these places, which are in log order per partition."""
    codec = codec_for(settings)
    for partition, of_partition in groupby(places, key=lambda place: place[0]):
        offsets = [offset for _, offset in of_partition]
        reader = PartitionReader(settings, SPANS, partition, group_id=GROUP_ID, read_committed=True)
        missing = set(offsets)
        for message in reader.ranges(joined_ranges((offset, offset) for offset in offsets)):
            if message.offset() not in missing:
                continue
            missing.discard(message.offset() or 0)
            record = decoded(codec, message)
            if not isinstance(record, SpanRecord):
                raise _other_log()
            yield record
        if missing:
            raise _other_log()


def _other_log() -> ServiceUnavailableError:
    return ServiceUnavailableError(
        "the view holds another log than the cluster.", next_step="Delete the view's file: it is rebuilt."
    )
