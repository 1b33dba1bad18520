"""OTLP for the store's server: the gateway's decoding in front of a store instead of Kafka."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from lightstream.producers.attribution import UNATTRIBUTED, Attribution
from lightstream.producers.otlp.decode import Rejection
from lightstream.producers.otlp.gateway import Signal, decoder_of, traces_endpoint
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import DecodeError, StoreError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.records import DeadLetterReason, SpanRecord
from lightstream.schemas.types import Span
from lightstream.store_views.stores.http import TracesEndpoint
from lightstream.store_views.stores.kafka.span_record import span_of_record

logger = logging.getLogger(__name__)

INLINE_BYTES_MAX = 32 * 1024
"""Bodies up to this are decoded on the event loop, in under a millisecond; a thread would take longer to begin."""


def traces_of_store(store: LightningStore, settings: Settings) -> TracesEndpoint:
    """Make the endpoint that takes OTLP traces for ``store``: a span goes to the attempt that it, its resource or the
    request names.

    Spans without a sequence number get the next one of their rollout. Those that name no attempt, or one that does not
    exist, are left out and reported in ``partial_success``; the others are kept.
    """
    return traces_endpoint(settings, _StoreIntake(store))


class _StoreIntake:
    def __init__(self, store: LightningStore) -> None:
        self._store = store

    async def take(
        self, signal: Signal, body: bytes, *, as_json: bool, fallback: Attribution = UNATTRIBUTED, origin: str
    ) -> list[Rejection]:
        decode = decoder_of(signal, as_json=as_json)
        if len(body) <= INLINE_BYTES_MAX:
            decoded = decode(body, fallback)
        else:
            decoded = await asyncio.to_thread(decode, body, fallback)
        rejections = list(decoded.rejections)
        of_attempt: dict[tuple[str, str], list[SpanRecord]] = {}
        for record in decoded.records:
            if record.rollout_id and record.attempt_id:
                of_attempt.setdefault((record.rollout_id, record.attempt_id), []).append(record)
            else:
                rejections.append(_rejected(f"span {record.span_id} names no rollout and attempt"))
        for attempt, records in of_attempt.items():
            rejections += await self._add(attempt, [span_of_record(record) for record in records])
        if rejections:
            logger.warning("%d spans of a request were left out: %s", len(rejections), rejections[0].detail)
        return rejections

    async def set_aside(self, error: DecodeError, body: bytes, origin: str) -> None:
        logger.warning("a request to %s of %d bytes was refused: %s", origin, len(body), error.message)

    async def _add(self, attempt: tuple[str, str], spans: Sequence[Span]) -> list[Rejection]:
        """Keep an attempt's spans; returns those that the store refuses."""
        try:
            unnumbered = [span for span in spans if span.sequence_id == 0]
            numbers = await self._store.get_many_span_sequence_ids([attempt] * len(unnumbered)) if unnumbered else []
            for span, number in zip(unnumbered, numbers, strict=True):
                span.sequence_id = number
            await self._store.add_many_spans(spans)
        except StoreError as error:
            if len(spans) == 1:
                return [_rejected(error.message)]
            return [rejection for span in spans for rejection in await self._add(attempt, [span])]
        return []


def _rejected(detail: str) -> Rejection:
    return Rejection(DeadLetterReason.BROKEN_RULE, detail, b"")
