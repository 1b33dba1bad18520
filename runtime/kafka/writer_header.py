"""The header that names the version of Lightstream that wrote a record, and messages about records only it can read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from confluent_kafka import Message

from lightstream.schemas.codec import Codec
from lightstream.schemas.distribution import installed_version
from lightstream.schemas.records import Record

from .publishing import Headers

WRITER = "writer"
"""Header: the version that wrote the record, such as ``0.2.0``. Records from before that have none."""


def with_writer(headers: Headers | None = None) -> Headers:
    """These headers and that of the version which is installed here; every record of ours has it."""
    return [*(headers or ()), (WRITER, installed_version())]


def writer_in(headers: Iterable[tuple[str, str | bytes | None]] | None) -> str | None:
    """The version that wrote the record with these headers, where they tell."""
    for name, value in headers or ():
        if name == WRITER and value:
            return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return None


def decoded(codec: Codec, message: Message) -> Record:
    """The record in ``message``.

    Raises:
        DecodeError: as :meth:`Codec.decode`, which is told who wrote it.
    """
    return codec.decode(message.value(), writer_in(_headers(message)))


def unread_reason(counts: Mapping[str, int]) -> str | None:
    """Say that records wait for an upgrade, and for which; ``None`` where none do.

    Args:
        counts: version that wrote them -> how many.
    """
    count = sum(counts.values())
    if not count:
        return None
    newest = max(counts, key=_numbers)
    return (
        f"{count:,} records of Lightstream {', '.join(sorted(counts, key=_numbers))} cannot be read by "
        f"{installed_version()}: install version {newest} or a later one. They are kept, and read then"
    )


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def _headers(message: Message) -> Iterable[tuple[str, str | bytes | None]]:
    headers = message.headers()
    return headers.items() if isinstance(headers, dict) else headers or ()
