"""Dialects: the interfaces that agents speak; OpenAI's own needs no translation."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from pydantic_core import to_json

from lightstream.runtime.http.errors import openai_error

from ..capture import Completion
from ..events import event_of
from ..normal_form import Part

Endpoint: TypeAlias = Literal["chat/completions", "completions", "embeddings"]
"""Path asked of the model server, below its base URL."""


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One event of the model server's stream, without the fields that only the proxy asked for.

    Attributes:
        data: the event's bytes, for those who take it as it is.
        is_comment: it carries nothing: a comment, or the end mark.
        parts: what it adds to the first choice, for those who write it in their own words.
    """

    data: bytes
    is_comment: bool = False
    parts: Sequence[Part] = ()


class Translation(Protocol):
    """One call on its way between the agent's dialect and the model server's."""

    @property
    def request(self) -> dict[str, Any]:
        """The request to the model server."""
        ...

    @property
    def response_id(self) -> str | None:
        """The answer's id as the agent sees it, where that is not the model server's; known once it was sent."""
        ...

    def whole(self, answer: Completion, body: dict[str, Any]) -> dict[str, Any]:
        """A whole answer in the agent's dialect.

        Args:
            answer: what the model server said.
            body: as it said it, without the fields that only the proxy asked for.
        """
        ...

    def stream(self, answer: Completion, events: AsyncIterator[StreamEvent]) -> AsyncGenerator[bytes]:
        """A streamed answer in the agent's dialect, event by event.

        Args:
            answer: what the model server has said so far, up to the event at hand.
            events: its events; where they end, so does the answer.
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
        """The model server's endpoint that answers it."""
        ...

    @property
    def is_sampled(self) -> bool:
        """Whether a model samples the answer; embeddings are computed."""
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


@dataclass(frozen=True, slots=True)
class _AsItIs:
    request: dict[str, Any]
    response_id: str | None = None

    def whole(self, answer: Completion, body: dict[str, Any]) -> dict[str, Any]:
        return body

    async def stream(self, answer: Completion, events: AsyncIterator[StreamEvent]) -> AsyncGenerator[bytes]:
        async for event in events:
            yield event.data


@dataclass(frozen=True, slots=True)
class PlainDialect:
    """A dialect that needs no translation."""

    api: str
    endpoint: Endpoint
    is_sampled: bool = True

    async def translate(self, request: dict[str, Any]) -> Translation:
        return _AsItIs(request)

    def error(self, status: int, message: str) -> dict[str, Any]:
        return proxy_error(status, message)

    def error_event(self, status: int, message: str) -> bytes:
        return event_of(to_json(proxy_error(status, message)))

    def passed_on_error(self, status: int, body: bytes) -> bytes:
        return body


def proxy_error(status: int, message: str) -> dict[str, Any]:
    """An error of the proxy's own, in OpenAI's shape."""
    return openai_error(message, status=status, kind="lightstream_proxy")


CHAT = PlainDialect("chat", "chat/completions")
COMPLETIONS = PlainDialect("text_completion", "completions")
EMBEDDINGS = PlainDialect("embeddings", "embeddings", is_sampled=False)
