"""From a request's body to encoded records, ready to be sent: all that costs processor time. Pure."""

from __future__ import annotations

from hashlib import blake2b

from lightstream.schemas.clock import Clock
from lightstream.schemas.codec import Codec
from lightstream.schemas.errors import RecordError, RecordTooLargeError
from lightstream.schemas.kafka import Outgoing
from lightstream.schemas.records import DeadLetter, DeadLetterReason, Record, SpanRecord
from lightstream.schemas.topics import DEAD_LETTERS, SPANS, Topic

from ...exporter import taken_as_fits
from ..decode import Decoded, Rejection

__all__ = ["Encoder", "dead_letter_of"]

REPORTED_BY = "gateway"
NO_PARTITION = -1


class Encoder:
    """Encodes what a request gave.

    Args:
        limit_bytes: largest value of a record.
    """

    def __init__(self, codec: Codec, clock: Clock, limit_bytes: int) -> None:
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
        key = f"{letter.origin_topic}-{letter.origin_partition}-{letter.origin_offset}"
        return Outgoing(DEAD_LETTERS, key, self._codec.encode(letter))

    def encode_record(self, topic: Topic, key: str, record: Record) -> Outgoing:
        """Any other record."""
        return Outgoing(topic, key, self._codec.encode(record))

    def _span(self, record: SpanRecord) -> Outgoing:
        value, _ = taken_as_fits(record, self._encoded)
        return Outgoing(SPANS, record.rollout_id or record.trace_id, value)

    def _encoded(self, record: SpanRecord) -> bytes:
        value = self._codec.encode(record)
        if len(value) > self._limit_bytes:
            raise RecordTooLargeError(SPANS.name, len(value), self._limit_bytes)
        return value


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
