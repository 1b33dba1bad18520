"""Upstreams, which answer requests for the proxy: an OpenAI-compatible server, or LiteLLM."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic_core import to_json

from lightstream.runtime.http.errors import openai_error


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
        defaults: parameters that the back end was given beside those of the request, which count where both have one.
    """

    status: int
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    content_type: str = "application/json"
    body: bytes | None = None
    pieces: AsyncIterator[bytes] | None = None
    close: Callable[[], None] = lambda: None
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Upstream(Protocol):
    """A back end."""

    async def start(self) -> None:
        """Get ready; called once, in the event loop."""
        ...

    async def stop(self) -> None:
        """Let go of connections."""
        ...

    async def ask(self, endpoint: str, request: dict[str, Any], *, streams: bool) -> UpstreamAnswer:
        """Ask ``chat/completions``, ``completions`` or ``embeddings``; cancelling it abandons the request.

        Raises:
            UpstreamError: there is no answer.
        """
        ...

    async def models(self, name: str = "") -> UpstreamAnswer:
        """The list of models, or the description of the one with that name.

        Raises:
            UpstreamError: there is no answer.
        """
        ...


def listed(names: Sequence[str], owner: str, name: str) -> UpstreamAnswer:
    """The answer with the models of these names; with the one of that ``name``, if it is not empty."""
    entries = [{"id": each, "object": "model", "created": 0, "owned_by": owner} for each in dict.fromkeys(names)]
    if not name:
        return UpstreamAnswer(200, body=to_json({"object": "list", "data": entries}))
    found = next((entry for entry in entries if entry["id"] == name), None)
    return unknown_model(name, names) if found is None else UpstreamAnswer(200, body=to_json(found))


def unknown_model(name: object, names: Sequence[str]) -> UpstreamAnswer:
    """The answer to a request for a model that is not there."""
    message = f"there is no model {name!r}; there are: {', '.join(dict.fromkeys(names)) or 'none'}"
    body = openai_error(message, status=404, parameter="model", code="model_not_found")
    return UpstreamAnswer(404, body=to_json(body))
