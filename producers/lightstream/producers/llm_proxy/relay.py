"""A streamed answer on its way to the agent: passed on as it comes, its end held back until the call is durable."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from pydantic_core import from_json, to_json

from lightstream.schemas.errors import LightstreamError

from .call import Call
from .capture import Wanted, capture, policy_version_of, without_extras
from .events import EventSplitter, event_data, event_of
from .exchange import Exchange, error_reply
from .upstream import UpstreamAnswer, UpstreamError

__all__ = ["StreamRelay"]

DONE = b"[DONE]"


class StreamRelay:
    """Relays one streamed answer and records it.

    What tells the agent that its answer is complete (the piece that finishes the last choice, and all after it) is
    held back until the record is durable; everything before passes at once.
    """

    def __init__(self, exchange: Exchange, call: Call, upstream: UpstreamAnswer, wanted: Wanted) -> None:
        self._exchange = exchange
        self._call = call
        self._upstream = upstream
        self._wanted = wanted
        self._recorded = False

    async def pieces(self) -> AsyncGenerator[bytes]:
        """The bytes for the agent."""
        held: list[bytes] = []
        try:
            async for event in self._events():
                if self._call.is_complete or self._call.error_message:
                    held.append(event)
                else:
                    yield event
            if not self._call.is_complete and not self._call.error_message:
                raise UpstreamError("the LLM server's stream ended before the answer was complete", status=502)
        except UpstreamError as error:
            if not self._call.is_complete:  # what breaks off after the last token costs nothing
                self._call.error_message = str(error)
                held.append(event_of(error_reply(error.status, str(error)).body))
        failure = await self._record()
        for event in [failure] if failure is not None else held:
            yield event

    def close(self) -> None:
        """Called however the relay ended; an answer that was not recorded belongs to a client that has gone."""
        self._upstream.close()
        if not self._recorded:
            self._recorded = True
            self._exchange.abandoned(self._call)

    async def _events(self) -> AsyncGenerator[bytes]:
        """Events for the agent; what each says is in the call before it is handed out."""
        assert self._upstream.pieces is not None, "only a streamed answer is relayed"  # noqa: S101  # the caller's choice, no input
        splitter = EventSplitter()
        async for piece in self._upstream.pieces:
            for event in splitter.feed(piece):
                yield self._captured(event)
        for event in splitter.rest():
            yield self._captured(event)

    def _captured(self, event: bytes) -> bytes:
        data = event_data(event)
        if data is None or data == DONE:
            return event
        try:
            body = from_json(data)
        except ValueError:
            return event
        if not isinstance(body, dict):
            return event
        if body.get("error"):
            self._call.error_message = f"the LLM server broke off: {body['error']}"
            return event
        capture(self._call.answer, body)
        if self._call.policy_version is None:
            self._call.policy_version = policy_version_of(None, self._call.answer.model)
        if self._wanted.everything:
            return event
        without_extras(body, self._wanted)
        return event_of(to_json(body))

    async def _record(self) -> bytes | None:
        """Make the call durable; returns the event that tells the agent that this failed."""
        self._recorded = True
        self._call.http_status = 200
        try:
            await self._exchange.recorder.record(self._call)
        except LightstreamError as error:
            message = f"the call could not be recorded, so its end is withheld: {error}"
            return event_of(error_reply(503, message).body)
        return None
