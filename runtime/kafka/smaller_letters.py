"""Dead letters of records that a topic refuses, cut where the limit of ``dead-letters`` is low too."""

from __future__ import annotations

import time
from hashlib import blake2b

from lightstream.schemas.both_ends import both_ends
from lightstream.schemas.codec import Codec
from lightstream.schemas.errors import RecordTooLargeError
from lightstream.schemas.records import DeadLetter, DeadLetterReason
from lightstream.schemas.topics import DEAD_LETTERS, Topic

from .publishing import Instead, Outgoing

DETAIL_CHARS_MAX = 500
KEY_BYTES_MAX = 64 * 1024

NO_PARTITION = -1
"""``origin_partition`` of a record that is not in the log."""


def letter_instead(
    codec: Codec, refused: Outgoing, reason: DeadLetterReason, detail: str, *, value_bytes_max: int, reported_by: str
) -> Outgoing:
    """The dead letter of a record that its topic refuses.

    It has no offset; a hash of its value stands there, so that the same record refused again is the same letter.

    Args:
        value_bytes_max: so much of the record is in the letter.
    """
    value = refused.value or b""
    letter = DeadLetter(
        reason=reason,
        detail=detail,
        origin_topic=refused.topic.name,
        origin_partition=NO_PARTITION,
        origin_offset=int.from_bytes(blake2b(value, digest_size=8).digest(), "big") >> 1,
        key=refused.key.encode()[:KEY_BYTES_MAX],
        value=value[:value_bytes_max],
        value_size=len(value),
        reported_by=reported_by,
        observed_unix_nano=time.time_ns(),
    )
    key = f"{letter.origin_topic}-{letter.origin_offset}"
    instead = smaller_letter(codec, DEAD_LETTERS, key, letter)
    return Outgoing(DEAD_LETTERS, key, codec.encode(letter), instead=instead)


def smaller_letter(codec: Codec, topic: Topic, key: str, letter: DeadLetter) -> Instead:
    """Makes the same letter with less of its value; with none, if not even its beginning fits."""

    def smaller(error: RecordTooLargeError) -> Outgoing | None:
        value = letter.value or b""
        if not value and len(letter.detail) <= DETAIL_CHARS_MAX:
            return None
        kept_bytes = max(0, len(value) - (error.size_bytes - error.limit_bytes))
        changes = {"value": value[:kept_bytes], "detail": both_ends(letter.detail, DETAIL_CHARS_MAX)}
        cut = letter.model_copy(update=changes)
        return Outgoing(topic, key, codec.encode(cut), instead=smaller_letter(codec, topic, key, cut))

    return smaller
