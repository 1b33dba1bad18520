"""Which dialects' messages are read, and in which order."""

from __future__ import annotations

from collections.abc import Callable

from lightstream.schemas.records import SpanRecord

from ._bodies import read_kept_bodies, read_recorded, read_weave
from ._conversation import Conversation
from ._events import read_events
from ._gen_ai import read_details, read_flattened, read_parts
from ._litellm import read_litellm_legacy
from ._openinference import read_openinference
from ._pydantic_ai import read_pydantic_ai
from ._vercel import read_vercel

__all__ = ["READERS", "Reader", "read_conversation"]

Reader = Callable[[SpanRecord], Conversation | None]
"""What a span says of a call's messages; ``None`` where it speaks another dialect. Never raises, changes nothing."""

READERS: tuple[Reader, ...] = (
    read_recorded,
    read_flattened,
    read_parts,
    read_details,
    read_openinference,
    read_weave,
    read_kept_bodies,
    read_vercel,
    read_pydantic_ai,
    read_events,
    read_litellm_legacy,
)
"""The first that finds messages is believed."""


def read_conversation(span: SpanRecord) -> Conversation | None:
    """What ``span`` says was asked and answered; ``None`` when it says nothing."""
    for reader in READERS:
        found = reader(span)
        if found is not None and (found.messages or found.answer):
            return found
    return None
