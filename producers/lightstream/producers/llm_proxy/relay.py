"""A streamed answer on its way to the agent: passed on as it comes, its end held back until the call is durable."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, TypeAlias

from pydantic_core import from_json, to_json

from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import LightstreamError

from .call import Call
from .capture import Completion, capture, policy_version_of, without_extras
from .continuation import HEAD, without_interruption
from .dialects import StreamEvent
from .events import EventSplitter, event_data, event_of
from .recording import CallRecorder
from .upstream import UpstreamAnswer, UpstreamError

__all__ = ["ERROR_TEXT_MAX", "StreamRelay"]

Rest: TypeAlias = Callable[[Call, Completion], Awaitable[UpstreamAnswer]]

DONE = b"[DONE]"

ERROR_TEXT_MAX = 2000
"""Characters of an upstream's error that go into the record."""


class StreamRelay:
    """Relays one streamed answer and records it.

    What tells the agent that its answer is complete (the piece that finishes the last choice, and all after it) is
    held back until the record is durable; everything before passes at once. A stream that breaks off, says what is no
    chunk, takes too long or grows too large ends in an error event, in the agent's dialect. One that is interrupted for
    new weights is gone on with, as one stream.

    Args:
        settings: limits.
        recorder: writes the call.
        call: what comes is gathered in it.
        upstream: the answer that has begun.
        rest: asks for the rest of an interrupted one.
    """

    def __init__(
        self, settings: Settings, recorder: CallRecorder, call: Call, upstream: UpstreamAnswer, rest: Rest
    ) -> None:
        self._settings = settings
        self._rest = rest
        self._head: dict[str, Any] = {}
        self._is_rest = False
        self._left_bytes = settings.llm_response_bytes_max
        self._ends: float | None = None
        self._recorder = recorder
        self._call = call
        self._upstream = upstream
        self._recorded = False
        self._failure: UpstreamError | None = None

    async def pieces(self) -> AsyncGenerator[bytes]:
        """The bytes for the agent."""
        translation = self._call.translation
        assert translation is not None, "only an understood request has a stream"  # noqa: S101  # our own order of steps
        held: list[bytes] = []
        try:
            async with contextlib.aclosing(translation.stream(self._events())) as events:
                async for event in events:
                    if self._failure is not None:
                        break  # what a translator makes of a stream cut short looks like an end
                    if self._call.is_complete:
                        held.append(event)
                    else:
                        yield event
        except UpstreamError as error:
            self._failure = error
        if self._failure is not None:
            self._call.error_message = str(self._failure)
            held = [self._call.dialect.error_event(self._failure.status, str(self._failure))]
        self._call.seen_response_id = translation.response_id
        withheld = await self._record()
        for event in [withheld] if withheld is not None else held:
            yield event

    def close(self) -> None:
        """Called however the relay ended; an answer that was not recorded belongs to a client that has gone."""
        self._upstream.close()
        if not self._recorded:
            self._recorded = True
            if self._call.translation is not None:
                self._call.seen_response_id = self._call.translation.response_id
            self._recorder.record_abandoned(self._call)

    async def _events(self) -> AsyncGenerator[StreamEvent]:
        """Events for the agent; the content of each is in the call before it is yielded. Ends at a failure."""
        try:
            async for event in self._captured_events():
                yield event
            while self._call.completion.is_interrupted:
                self._upstream.close()
                self._upstream = await self._rest(self._call, self._call.completion)
                self._is_rest = True
                for choice in self._call.completion.choices.values():
                    choice.is_interrupted = False
                async for event in self._captured_events():
                    yield event
            if not self._call.is_complete:
                raise UpstreamError("the LLM server's stream ended before the answer was complete", status=502)
        except UpstreamError as error:
            if not self._call.is_complete:  # what breaks off after the last token costs nothing
                self._failure = error

    async def _captured_events(self) -> AsyncGenerator[StreamEvent]:
        """Those of one answer of the model server; without the end of one that is to be gone on with."""
        async for event in self._raw_events():
            captured = self._captured(event)
            if captured.body is not None or not self._call.completion.is_interrupted:
                yield captured

    async def _raw_events(self) -> AsyncGenerator[bytes]:
        assert self._upstream.pieces is not None, "only a streamed answer is relayed"  # noqa: S101  # the caller's choice, no input
        settings = self._settings
        time = asyncio.get_running_loop().time
        self._ends = self._ends or time() + settings.llm_stream_timeout_s
        splitter = EventSplitter()
        async for piece in self._upstream.pieces:
            self._left_bytes -= len(piece)
            if self._left_bytes < 0:
                limit_bytes = settings.llm_response_bytes_max
                limit = f"{limit_bytes:,} bytes (LIGHTSTREAM_LLM_RESPONSE_BYTES_MAX)"
                raise UpstreamError(f"the LLM server's stream exceeds {limit}", status=502)
            if time() > self._ends:
                limit_s = settings.llm_stream_timeout_s
                limit = f"{limit_s:g} s (LIGHTSTREAM_LLM_STREAM_TIMEOUT_S)"
                raise UpstreamError(f"the LLM server's stream did not end within {limit}", status=504)
            try:
                events = splitter.feed(piece)
            except ValueError as error:
                raise UpstreamError(f"the LLM server's stream is malformed: {error}", status=502) from error
            for event in events:
                yield event
        for event in splitter.rest():
            yield event

    def _captured(self, event: bytes) -> StreamEvent:
        """The event, and what it says in the call.

        Raises:
            UpstreamError: it is an error, or no object: going on would record an answer with a hole in it.
        """
        data = event_data(event)
        if data is None or data == DONE:
            return StreamEvent(event, None)
        try:
            body = from_json(data)
        except ValueError:
            body = None
        if not isinstance(body, dict):
            shown = data[:ERROR_TEXT_MAX].decode("utf-8", errors="replace")
            raise UpstreamError(f"the LLM server streamed something other than a JSON object: {shown}", status=502)
        if body.get("error"):
            raise UpstreamError(f"the LLM server aborted the stream: {body['error']}", status=502)
        if self._is_rest:
            body |= self._head
        elif not self._head:
            self._head = {name: body[name] for name in HEAD if name in body}
        capture(self._call.completion, body)
        if self._call.policy_version is None:
            self._call.policy_version = policy_version_of(None, self._call.completion.model)
        is_changed = self._is_rest or self._call.completion.is_interrupted
        if self._call.wanted.everything and not is_changed:
            return StreamEvent(event, body)
        without_extras(body, self._call.wanted)
        without_interruption(body)
        return StreamEvent(event_of(to_json(body)), body)

    async def _record(self) -> bytes | None:
        """Make the call durable; returns the event that tells the agent that this failed."""
        self._recorded = True
        self._call.http_status = 200
        try:
            await self._recorder.record(self._call)
        except LightstreamError as error:
            message = f"the call could not be recorded, so its end is withheld: {error}"
            return self._call.dialect.error_event(503, message)
        return None
