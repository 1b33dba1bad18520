"""Make the items of a request durable before the client is answered."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from typing import Protocol

from lightstream.producers.attribution import UNATTRIBUTED, Attribution
from lightstream.producers.exporter import shortened, taken_as_fits
from lightstream.producers.otlp import decode
from lightstream.runtime.clock import Clock, SystemClock
from lightstream.runtime.kafka import NO_PARTITION, RECORD_OVERHEAD_BYTES_MAX, Delivered, Outgoing, smaller_letter
from lightstream.runtime.own_spans import OWN_RESOURCE
from lightstream.runtime.redaction import Redaction
from lightstream.runtime.schema_registry import codec_for
from lightstream.runtime.settings import Settings
from lightstream.schemas.codec import Codec
from lightstream.schemas.errors import BackpressureError, DecodeError, PublishError, RecordError, RecordTooLargeError
from lightstream.schemas.records import DeadLetter, DeadLetterReason, SpanRecord
from lightstream.schemas.topics import DEAD_LETTERS, SPANS

from ..decode import Decoded, Rejection
from .responses import Signal

REPORTED_BY = "gateway"


class Encoder:
    """Encodes the items of a request.

    Args:
        limit_bytes: largest value of a record.
        redact: takes out of spans what must not be kept; with rules, dead letters have no value either.
    """

    def __init__(self, codec: Codec, clock: Clock, limit_bytes: int, redact: Redaction) -> None:
        self._redact = redact
        self._codec = codec
        self._clock = clock
        self._limit_bytes = limit_bytes

    def encode(self, decoded: Decoded, origin: str) -> list[Outgoing]:
        """The spans, and a dead letter for each rejected item, in that order.

        A span over the limit loses its biggest values; one that still does not fit is moved to ``decoded.rejections``.

        Args:
            origin: name of where the request came from, for dead letters.
        """
        spans = self.encode_spans(decoded)
        return spans + [self.dead_letter(rejection, origin) for rejection in decoded.rejections]

    def encode_spans(self, decoded: Decoded) -> list[Outgoing]:
        """As :meth:`encode`, without the dead letters."""
        spans: list[Outgoing] = []
        for record in decoded.records:
            if record.resource_attributes.get(OWN_RESOURCE):
                continue  # what we did ourselves is no trace of an agent
            try:
                spans.append(self._span(record))
            except (RecordError, RecordTooLargeError) as error:
                too_large = isinstance(error, RecordTooLargeError)
                reason = DeadLetterReason.TOO_LARGE if too_large else DeadLetterReason.BROKEN_RULE
                identity = f"{record.trace_id}/{record.span_id}".encode("utf-8", "replace")
                decoded.rejections.append(Rejection(reason, error.message, identity))
        return spans

    def dead_letter(self, rejection: Rejection, origin: str) -> Outgoing:
        """The record of an item that is left out; the same for the same item."""
        letter = dead_letter_of(rejection, origin, self._limit_bytes // 2, self._clock.now_unix_nano())
        if self._redact.is_active:
            letter = letter.model_copy(update={"value": b"", "detail": self._redact.text(letter.detail)})
        key = f"{letter.origin_topic}-{letter.origin_partition}-{letter.origin_offset}"
        return self.encode_letter(key, letter)

    def encode_letter(self, key: str, letter: DeadLetter) -> Outgoing:
        """A dead letter."""
        smaller = smaller_letter(self._codec, DEAD_LETTERS, key, letter)
        return Outgoing(DEAD_LETTERS, key, self._codec.encode(letter), instead=smaller)

    def _span(self, record: SpanRecord) -> Outgoing:
        outgoing, _ = taken_as_fits(self._redact(record), self._outgoing)
        return outgoing

    def _outgoing(self, record: SpanRecord) -> Outgoing:
        value = self._codec.encode(record)
        if len(value) > self._limit_bytes:
            raise RecordTooLargeError(SPANS.name, len(value), self._limit_bytes)
        return Outgoing(SPANS, record.rollout_id or record.trace_id, value, instead=partial(self._instead, record))

    def _instead(self, record: SpanRecord, error: RecordTooLargeError) -> Outgoing:
        """The span in the size that the topic takes."""
        cut = shortened(record, error.size_bytes - error.limit_bytes)
        value = self._codec.encode(cut)
        if len(value) >= error.size_bytes:
            identity = f"{record.trace_id}/{record.span_id}".encode("utf-8", "replace")
            return self.dead_letter(Rejection(DeadLetterReason.TOO_LARGE, error.message, identity), SPANS.name)
        return Outgoing(SPANS, cut.rollout_id or cut.trace_id, value, instead=partial(self._instead, cut))


def dead_letter_of(rejection: Rejection, origin: str, value_bytes_max: int, observed_unix_nano: int) -> DeadLetter:
    """The dead letter of an item that came by a request.

    It has no offset; a hash of the item stands there, so that the same item sent again is the same letter.
    """
    digest = blake2b(rejection.value + rejection.detail.encode("utf-8", "replace"), digest_size=8).digest()
    return DeadLetter(
        reason=rejection.reason,
        detail=rejection.detail.encode("utf-8", "replace").decode(),
        origin_topic=origin,
        origin_partition=NO_PARTITION,
        origin_offset=int.from_bytes(digest, "big") >> 1,
        value=rejection.value[:value_bytes_max],
        value_size=len(rejection.value),
        reported_by=REPORTED_BY,
        observed_unix_nano=observed_unix_nano,
    )


logger = logging.getLogger(__name__)

INLINE_BYTES_MAX = 32 * 1024
"""Bodies up to this are decoded on the event loop, in under a millisecond; a thread would take longer to begin."""

DECODING_THREADS = 2
"""Decoding is Python and holds the interpreter most of the time; a second one reads while the first waits for numpy."""

UNDECODABLE_KEPT_BYTES = 64 * 1024
"""Bytes of a body that is not OTLP in its dead letter: enough to tell what it is."""

SLICE_RECORDS = 1000
"""Handed over in a row. Then the loop turns, so that other clients get their answers."""

RETRY_INTERVAL_S = 0.01
"""Interval at which a full client buffer is tried again."""


class RowSink(Protocol):
    """Makes encoded records durable."""

    def send_all(self, records: Sequence[Outgoing], delivered: Sequence[Delivered]) -> int:
        """Hand over records in a row. Returns for how many there was room: each of these is reported once."""
        ...


class Intake:
    """For one event loop. A request waits at most the setting ``gateway_wait_s`` to become durable.

    Attributes:
        encoder: for any thread.
    """

    def __init__(
        self, settings: Settings, sink: RowSink, *, codec: Codec | None = None, clock: Clock | None = None
    ) -> None:
        self._sink = sink
        self._wait_s = settings.gateway_wait_s
        limit_bytes = settings.record_bytes_max - RECORD_OVERHEAD_BYTES_MAX
        self.encoder = Encoder(codec or codec_for(settings), clock or SystemClock(), limit_bytes, Redaction(settings))
        self._metrics_told = False
        self._threads = ThreadPoolExecutor(DECODING_THREADS, thread_name_prefix="lightstream-otlp")

    async def take(
        self, signal: Signal, body: bytes, *, as_json: bool, fallback: Attribution = UNATTRIBUTED, origin: str
    ) -> list[Rejection]:
        """Decode a request and make it durable. Returns the items left out, which are durable as dead letters.

        Metrics are not kept.

        Args:
            fallback: attribution of the request itself.
            origin: where it came from, for dead letters.

        Raises:
            DecodeError: it is not what it should be; nothing was taken, and a dead letter holds its beginning.
            PublishError: not all of it is known to be durable. It may come again: repeated spans are one.
            ServiceUnavailableError: no Kafka, or no Schema Registry, answers.
        """
        if signal is Signal.METRICS:
            if not self._metrics_told:
                logger.warning("metrics are accepted and discarded; set OTEL_METRICS_EXPORTER=none at their source")
            self._metrics_told = True
            return []
        decode_body = decoder_of(signal, as_json=as_json)

        def work() -> tuple[Decoded, list[Outgoing]]:
            decoded = decode_body(body, fallback)
            return decoded, self.encoder.encode(decoded, origin)

        try:
            if len(body) <= INLINE_BYTES_MAX:
                decoded, records = work()
            else:
                decoded, records = await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except DecodeError as error:
            await self.set_aside(error, body, origin)
            raise
        await self.send(records)
        return decoded.rejections

    async def set_aside(self, error: DecodeError, body: bytes, origin: str) -> None:
        """Keep the beginning of a request that cannot be read as a dead letter.

        Raises:
            PublishError: it did not become durable.
        """
        rejection = Rejection(DeadLetterReason.BROKEN_RULE, error.message, body[:UNDECODABLE_KEPT_BYTES])
        await self.send([self.encoder.dead_letter(rejection, origin)])

    async def send(self, records: Sequence[Outgoing]) -> None:
        """Return once all of them are durable.

        Raises:
            PublishError: not all are known to be, within ``wait_s`` since Kafka's client took the last of them; some
                may become durable later.
        """
        if not records:
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._wait_s
        deliveries = _Deliveries(loop, len(records))
        sent = 0
        while sent < len(records):
            handed = records[sent : sent + SLICE_RECORDS]
            accepted = self._sink.send_all(handed, [deliveries.delivered] * len(handed))
            sent += accepted
            if accepted:
                deadline = loop.time() + self._wait_s
            elif loop.time() > deadline:
                raise BackpressureError(
                    f"the send buffer had no room for {len(records) - sent} records within {self._wait_s:g} s.",
                    next_step="Is Kafka reachable? LIGHTSTREAM_SEND_BUFFER_BYTES_MAX sets the size.",
                )
            if sent < len(records):
                await asyncio.sleep(0 if accepted == len(handed) else RETRY_INTERVAL_S)
        try:
            await asyncio.wait_for(deliveries.done, max(0.0, deadline - loop.time()))
        except TimeoutError as error:
            raise PublishError(f"Kafka has not acknowledged the request within {self._wait_s:g} s.") from error

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(wait=True)


class _Deliveries:
    """Counts the deliveries of one request.

    Attributes:
        done: resolves when all are durable, or fails with the first error once all have reported.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, count: int) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._remaining = count
        self._error: PublishError | None = None
        self.done: asyncio.Future[None] = loop.create_future()

    def delivered(self, error: PublishError | None) -> None:
        """For the publisher's thread."""
        with self._lock:
            self._remaining -= 1
            self._error = self._error or error
            if self._remaining:
                return
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._finish)

    def _finish(self) -> None:
        if self.done.done():
            return  # nobody waits any more
        if self._error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(self._error)


_DECODERS: dict[tuple[Signal, bool], Callable[[bytes, Attribution], Decoded]] = {
    (Signal.TRACES, False): decode.protobuf.decode_traces,
    (Signal.TRACES, True): decode.json.decode_traces,
    (Signal.LOGS, False): decode.protobuf.decode_logs,
    (Signal.LOGS, True): decode.json.decode_logs,
}


def decoder_of(signal: Signal, *, as_json: bool) -> Callable[[bytes, Attribution], Decoded]:
    """The decoder of a signal that is kept; metrics are not."""
    return _DECODERS[signal, as_json]
