"""Dead letters with less of what they hold, for a topic whose limit is low."""

from __future__ import annotations

from lightstream.schemas.both_ends import both_ends
from lightstream.schemas.codec import Codec
from lightstream.schemas.errors import RecordTooLargeError
from lightstream.schemas.records import DeadLetter
from lightstream.schemas.topics import Topic

from .publishing import Instead, Outgoing

__all__ = ["smaller_letter"]

DETAIL_CHARS_MAX = 500


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
