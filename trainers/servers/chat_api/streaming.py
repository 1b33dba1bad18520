"""An answer as server-sent events, token by token."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json

from lightstream.runtime.http.errors import openai_error

from .generation import INTERRUPTED, Generation, Job
from .requests import ChatRequest
from .responses import AnswerHead, chunk, usage_chunk
from .text import Decode, TextStream
from .tool_calls import content_length, read_tool_calls

DONE = b"data: [DONE]\n\n"


@dataclass(slots=True)
class _Choice:
    """The part of one choice that has been sent."""

    index: int
    generation: Generation
    text_stream: TextStream
    text: str = ""
    sent_text: int = 0
    sent_tokens: int = 0
    done: bool = False


async def stream_answer(
    head: AnswerHead,
    request: ChatRequest,
    job: Job,
    decode: Decode,
    token_text: Callable[[int], str],
    make_chunk: Callable[..., dict[str, Any]] = chunk,
) -> AsyncIterator[bytes]:
    """Events of one answer; abandoning the iterator (the client has gone) cancels the job."""
    choices = [_Choice(i, generation, TextStream(decode)) for i, generation in enumerate(job.generations)]
    for choice, answer in zip(choices, request.so_far, strict=False):
        choice.sent_text, choice.sent_tokens, choice.done = answer.text_length, len(answer.token_ids), answer.is_over
    try:
        while not all(choice.done for choice in choices):
            await job.news.wait()
            job.news.clear()
            for choice in choices:
                if choice.generation.error is not None:
                    body = openai_error(choice.generation.error, status=500, code="generation_failed")
                    yield _event(body)
                    return
                piece = _piece(head, request, choice, token_text, make_chunk)
                if piece is not None:
                    yield _event(piece)
        if request.includes_usage and not any(g.finish_reason == INTERRUPTED for g in job.generations):
            yield _event(usage_chunk(head, job))
        yield DONE
    finally:
        job.cancelled = True  # nothing to cancel where it is over


def _piece(
    head: AnswerHead,
    request: ChatRequest,
    choice: _Choice,
    token_text: Callable[[int], str],
    make_chunk: Callable[..., dict[str, Any]],
) -> Any:
    """The new part of one choice, or ``None``."""
    generation = choice.generation
    tokens_to = generation.ready
    over = generation.finish_reason is not None and tokens_to == len(generation.token_ids)
    if choice.done or (tokens_to == choice.sent_tokens and not over):
        return None
    last = over and generation.finish_reason != INTERRUPTED  # of one that goes on, nothing half is let go
    choice.text += choice.text_stream.take(generation.token_ids[:tokens_to], last=last)
    text_to = len(choice.text)
    if last and generation.text_end is not None:
        text_to = generation.text_end
    elif generation.stop_watcher is not None and not last:
        text_to = max(choice.sent_text, text_to - generation.stop_watcher.held_back)
    calls: dict[str, Any] = {}
    if request.reads_tool_calls:
        # Calls are told at the end: only then is it known whether the text has calls, or is content, all of it.
        parsed = read_tool_calls(choice.text[:text_to], parallel=request.parallel_tool_calls) if last else None
        if parsed is None or parsed.tool_calls:
            text_to = content_length(choice.text[:text_to])
        if parsed is not None and parsed.tool_calls:
            calls = {"tool_calls": parsed.tool_calls}
    piece = make_chunk(
        head,
        request,
        generation,
        choice.index,
        text=choice.text[choice.sent_text : text_to],
        tokens_from=choice.sent_tokens,
        tokens_to=tokens_to,
        last=over,
        token_text=token_text,
        **calls,
    )
    choice.sent_text, choice.sent_tokens, choice.done = max(choice.sent_text, text_to), tokens_to, over
    return piece


def _event(content: Any) -> bytes:
    return b"data: " + to_json(content) + b"\n\n"
