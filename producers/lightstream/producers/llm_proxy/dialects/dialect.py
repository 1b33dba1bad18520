"""What every dialect offers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

__all__ = ["Dialect", "Endpoint", "StreamEvent", "Translation"]

Endpoint: TypeAlias = Literal["chat/completions", "completions"]
"""What the model server is asked, below its base URL."""


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One event of the model server's stream, freed of what only the proxy asked for.

    Attributes:
        data: the event's bytes, for those who take it as it is.
        body: the object that it carries; ``None`` for a comment or the end mark.
    """

    data: bytes
    body: dict[str, Any] | None


class Translation(Protocol):
    """One call on its way between the agent's dialect and the model server's."""

    @property
    def request(self) -> dict[str, Any]:
        """What the model server is asked."""
        ...

    @property
    def response_id(self) -> str | None:
        """The answer's id as the agent sees it, where that is not the model server's; known once it was sent."""
        ...

    def whole(self, body: dict[str, Any]) -> dict[str, Any]:
        """A whole answer in the agent's dialect.

        Raises:
            UpstreamError: the model server's answer cannot be translated.
        """
        ...

    def stream(self, events: AsyncIterator[StreamEvent]) -> AsyncGenerator[bytes]:
        """A streamed answer in the agent's dialect, event by event.

        Raises:
            UpstreamError: the model server's answer cannot be translated.
        """
        ...


class Dialect(Protocol):
    """One interface that agents may speak."""

    @property
    def api(self) -> str:
        """Its name in records."""
        ...

    @property
    def endpoint(self) -> Endpoint:
        """What answers it at the model server."""
        ...

    async def translate(self, request: dict[str, Any]) -> Translation:
        """Begin a call.

        Raises:
            ValueError: the request cannot be translated; says why.
        """
        ...

    def error(self, status: int, message: str) -> dict[str, Any]:
        """An error's body."""
        ...

    def error_event(self, status: int, message: str) -> bytes:
        """The event that ends a stream which failed."""
        ...

    def passed_on_error(self, status: int, body: bytes) -> bytes:
        """The body of an error that the model server answered."""
        ...
