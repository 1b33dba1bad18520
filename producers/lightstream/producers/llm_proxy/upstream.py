"""Upstreams, which answer requests for the proxy: an OpenAI-compatible server, or LiteLLM."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

__all__ = ["Upstream", "UpstreamAnswer", "UpstreamError"]


class UpstreamError(Exception):
    """No answer: 400 (no such request is taken), 502 (not reachable, connection lost), 503 (none known), 504 (slow)."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(slots=True)
class UpstreamAnswer:
    """An answer with any status.

    Attributes:
        status, headers, content_type: of the HTTP answer; header names in lower case.
        body: the whole body, or ``None`` if it streams.
        pieces: the body as it comes, bytes of server-sent events; raises :class:`UpstreamError` where it breaks off.
        close: gives the connection up, whether or not all was read.
    """

    status: int
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    content_type: str = "application/json"
    body: bytes | None = None
    pieces: AsyncIterator[bytes] | None = None
    close: Callable[[], None] = lambda: None


class Upstream(Protocol):
    """A back end."""

    async def start(self) -> None:
        """Get ready; called once, in the event loop."""
        ...

    async def stop(self) -> None:
        """Let go of connections."""
        ...

    async def ask(self, endpoint: str, request: dict[str, Any], *, streams: bool) -> UpstreamAnswer:
        """Ask ``chat/completions`` or ``completions``; cancelling it abandons the request.

        Raises:
            UpstreamError: there is no answer.
        """
        ...

    async def models(self) -> UpstreamAnswer:
        """The list of models.

        Raises:
            UpstreamError: there is no answer.
        """
        ...
