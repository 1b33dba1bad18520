"""What belongs to one request while it is answered."""

from __future__ import annotations

from dataclasses import dataclass, field

from .call import Call
from .capture import Wanted
from .dialects import Dialect, Translation
from .upstream import UpstreamAnswer

__all__ = ["Reply", "Turn"]


@dataclass(slots=True)
class Turn:
    """One request.

    Attributes:
        call: what will be recorded.
        dialect: what the agent speaks.
        wanted: what the agent itself asked for.
        translation: between agent and model server; ``None`` until the request was understood.
    """

    call: Call
    dialect: Dialect
    wanted: Wanted = field(default_factory=lambda: Wanted(logprobs=True, token_ids=True))
    translation: Translation | None = None


@dataclass(slots=True)
class Reply:
    """What the agent gets; ``stream`` is set instead of ``body`` for a streamed answer."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    content_type: str = "application/json"
    stream: UpstreamAnswer | None = None
