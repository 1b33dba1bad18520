"""A streamed answer on its way to the agent: passed on as it comes, its end held back until the call is durable."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, TypeAlias

from pydantic_core import to_json

from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import LightstreamError
from lightstream.schemas.valid_text import valid_text

from .call import Call
from .capture import Completion, capture, policy_version_of, rest_of, without_extras
from .continuation import HEAD, without_interruption
from .dialects import StreamEvent
from .events import EventSplitter, event_data, event_of
from .json_text import read_json_as_sent
from .recording import CallRecorder
from .server_answers import SERVER_LOG, error_in, shown
from .upstream import UpstreamAnswer, UpstreamError

Rest: TypeAlias = Callable[[Call, Completion], Awaitable[UpstreamAnswer]]

DONE = b"[DONE]"


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
        self._is_cut = False

    async def pieces(self) -> AsyncGenerator[bytes]:
        """The bytes for the agent."""
        translation = self._call.translation
        assert translation is not None, "only an understood request has a stream"  # noqa: S101  # our own order of steps
        buffered: list[bytes] = []
        try:
            stream = translation.stream(self._call.completion, self._events())
            async with contextlib.aclosing(stream) as events:
                async for event in events:
                    if self._call.is_complete:
                        buffered.append(event)
                    else:
                        yield event
        except UpstreamError as error:
            self._call.error_message = str(error)
            buffered = [self._call.dialect.error_event(error.status, str(error))]
        self._call.seen_response_id = translation.response_id
        withheld = await self._record()
        for event in [withheld] if withheld is not None else buffered:
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
        """Events for the agent; the content of each is in the call before it is yielded.

        Raises:
            UpstreamError: the stream failed. What breaks off after the last token costs nothing, and is an end.
        """
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
        except UpstreamError:
            if not self._call.is_complete:
                raise
        if not self._call.completion.choices:
            raise UpstreamError(f"the LLM server's stream ended without an answer. {SERVER_LOG}", status=502)
        if not self._call.is_complete:
            message = f"the LLM server's stream ended before the answer was complete. {SERVER_LOG}"
            raise UpstreamError(message, status=502)

    async def _captured_events(self) -> AsyncGenerator[StreamEvent]:
        """Those of one answer of the model server; without the end of one that is to be gone on with.

        The end mark is the last: what a server sends after it is nobody's.
        """
        completion = self._call.completion
        async for event in self._raw_events():
            data = event_data(event)
            is_end = data is not None and data.strip() == DONE
            if is_end and completion.is_interrupted:
                return
            owed = rest_of(completion) if is_end else None
            if owed is not None:
                yield self._stream_event(b"", owed, has_halves=True)
            if is_end:
                completion.is_over = True
            if is_end or data is None or not data.strip():
                yield StreamEvent(event, is_comment=True)
            else:
                yield self._captured(event, data)
            if is_end:
                return

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
            self._is_cut = True
            yield event

    def _captured(self, event: bytes, data: bytes) -> StreamEvent:
        """The event, and what it says in the call.

        Raises:
            UpstreamError: it is an error, or no object: going on would record an answer with a hole in it.
        """
        try:
            body, has_halves = read_json_as_sent(data)
        except ValueError:
            body, has_halves = None, False
        if not isinstance(body, dict):
            what = "broke off within an event" if self._is_cut else "held something other than a JSON object"
            raise UpstreamError(f"the LLM server's stream {what}: {shown(data)}. {SERVER_LOG}", status=502)
        refused = error_in(body)
        if refused is not None:
            status, message = refused
            raise UpstreamError(f"the LLM server aborted the stream: {message}. {SERVER_LOG}", status=status)
        return self._stream_event(event, body, has_halves=has_halves)

    def _stream_event(self, event: bytes, body: dict[str, Any], *, has_halves: bool) -> StreamEvent:
        """The event of a chunk as the agent gets it, and what it says in the call."""
        completion = self._call.completion
        if self._is_rest:
            body |= self._head
        elif not self._head:
            self._head = {name: body[name] for name in HEAD if name in body}
        is_mended = has_halves or completion.owes_halves
        added = capture(completion, body)
        is_mended = is_mended or completion.owes_halves or any(part.call is not None for _, part in added)
        first = completion.first.index
        parts = [part for index, part in added if index == first]
        if self._call.policy_version is None:
            self._call.policy_version = policy_version_of(None, completion.model)
        if self._call.requested_extras.everything and not (self._is_rest or completion.is_interrupted or is_mended):
            return StreamEvent(event, parts=parts)
        without_extras(body, self._call.requested_extras)
        without_interruption(body)
        return StreamEvent(event_of(to_json(valid_text(body) if is_mended else body)), parts=parts)

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
