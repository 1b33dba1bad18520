"""Responses in OpenAI's shape, with vLLM's additions (``prompt_token_ids``, ``token_ids``) where they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .generation import Generation, Job
from .requests import ChatRequest
from .text import Decode
from .tool_calls import Said, call_deltas, read_tool_calls

TokenText = Callable[[int], str]


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """Fields of all parts of one answer: id, time of the request (seconds since 1970), name and number of the version.

    The version is the one that began it.
    """

    response_id: str
    created_s: int
    model: str
    version: int


def completion(head: AnswerHead, request: ChatRequest, job: Job, decode: Decode, token_text: TokenText) -> Any:
    """The whole answer as one JSON object."""
    choices: list[dict[str, Any]] = []
    for index, generation in enumerate(job.generations):
        text = decode(generation.token_ids)
        if generation.text_end is not None:
            text = text[: generation.text_end]
        parsed = read_tool_calls(text, parallel=request.parallel_tool_calls) if request.reads_tool_calls else Said(text)
        message: dict[str, Any] = {"role": "assistant", "content": parsed.content}
        if parsed.tool_calls:
            message["tool_calls"] = parsed.tool_calls
        choice: dict[str, Any] = {
            "index": index,
            "message": message,
            "finish_reason": "tool_calls" if parsed.tool_calls else generation.finish_reason,
            "logprobs": _logprobs(generation, generation.given, token_text) if request.logprobs else None,
        }
        if request.returns_token_ids:
            choice["token_ids"] = generation.token_ids[generation.given :]
            choice |= _versions(head, generation, 0, generation.ready)
        choices.append(choice)
    answer = head_of(head, "chat.completion") | {"choices": choices, "usage": usage_of(job)}
    if request.returns_token_ids:
        answer["prompt_token_ids"] = job.generations[0].prompt_ids
    return answer


def chunk(
    head: AnswerHead,
    request: ChatRequest,
    generation: Generation,
    index: int,
    *,
    text: str,
    tokens_from: int,
    tokens_to: int,
    last: bool,
    token_text: TokenText,
    tool_calls: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """One piece of a streamed answer: new text and the tokens ``tokens_from:tokens_to`` of one choice."""
    delta: dict[str, Any] = {"content": text}
    if tokens_from == 0:
        delta = {"role": "assistant", "content": text}
    finish_reason = generation.finish_reason if last else None
    if tool_calls:
        delta["tool_calls"] = call_deltas(tool_calls)
        finish_reason = "tool_calls" if finish_reason == "stop" else finish_reason
    choice: dict[str, Any] = {
        "index": index,
        "delta": delta,
        "finish_reason": finish_reason,
        "logprobs": _logprobs(generation, tokens_from, token_text, tokens_to) if request.logprobs else None,
    }
    answer = head_of(head, "chat.completion.chunk") | {"choices": [choice]}
    if request.returns_token_ids:
        choice["token_ids"] = generation.token_ids[tokens_from:tokens_to]
        choice |= _versions(head, generation, tokens_from, tokens_to)
        if tokens_from == 0:
            answer["prompt_token_ids"] = generation.prompt_ids
    return answer


def usage_of(job: Job) -> dict[str, int]:
    """Tokens read and written."""
    prompt = len(job.generations[0].prompt_ids)
    written = sum(len(generation.token_ids) for generation in job.generations)
    return {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}


def usage_chunk(head: AnswerHead, job: Job) -> dict[str, Any]:
    """The piece after the last one, for clients that requested ``stream_options.include_usage``."""
    return head_of(head, "chat.completion.chunk") | {"choices": [], "usage": usage_of(job)}


def head_of(head: AnswerHead, kind: str) -> dict[str, Any]:
    """The first fields of every part of an answer."""
    return {"id": head.response_id, "object": kind, "created": head.created_s, "model": head.model}


def _versions(head: AnswerHead, generation: Generation, tokens_from: int, tokens_to: int) -> dict[str, Any]:
    """The versions that began to sample among these tokens; nothing, where that goes without saying."""
    runs = [run for run in generation.runs if tokens_from <= run[0] < tokens_to]
    if runs in ([], [(0, head.version)]):
        return {}
    return {"policy_version_runs": [{"first_token": first, "policy_version": version} for first, version in runs]}


def _logprobs(
    generation: Generation, tokens_from: int, token_text: TokenText, tokens_to: int | None = None
) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    for position in range(tokens_from, len(generation.token_ids) if tokens_to is None else tokens_to):
        entry = _logprob(generation.token_ids[position], generation.logprobs[position], token_text)
        entry["top_logprobs"] = [
            _logprob(token, logprob, token_text)
            for token, logprob in (generation.top[position] if generation.top else [])
            if logprob > float("-inf")  # JSON has no infinity
        ]
        content.append(entry)
    return {"content": content, "refusal": None}


def _logprob(token: int, logprob: float, token_text: TokenText) -> dict[str, Any]:
    text = token_text(token)
    return {"token": text, "logprob": logprob, "bytes": list(text.encode())}


TEXT_KIND = "text_completion"


def text_completion(head: AnswerHead, request: ChatRequest, job: Job, decode: Decode, token_text: TokenText) -> Any:
    """The whole answer as one JSON object."""
    choices: list[dict[str, Any]] = []
    for index, generation in enumerate(job.generations):
        text = decode(generation.token_ids)
        if generation.text_end is not None:
            text = text[: generation.text_end]
        tokens = (generation.given, len(generation.token_ids))
        choice = _text_choice(head, request, generation, index, text, *tokens, token_text)
        choices.append(choice | {"finish_reason": generation.finish_reason})
    prompt = sum(len(generation.prompt_ids) for generation in job.generations[:: request.choices])
    written = sum(len(generation.token_ids) for generation in job.generations)
    usage = {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}
    return head_of(head, TEXT_KIND) | {"choices": choices, "usage": usage}


def text_chunk(
    head: AnswerHead,
    request: ChatRequest,
    generation: Generation,
    index: int,
    *,
    text: str,
    tokens_from: int,
    tokens_to: int,
    last: bool,
    token_text: TokenText,
) -> dict[str, Any]:
    """One piece of a streamed answer: new text and the tokens ``tokens_from:tokens_to`` of one choice."""
    choice = _text_choice(head, request, generation, index, text, tokens_from, tokens_to, token_text)
    return head_of(head, TEXT_KIND) | {
        "choices": [choice | {"finish_reason": generation.finish_reason if last else None}]
    }


def _text_choice(
    head: AnswerHead,
    request: ChatRequest,
    generation: Generation,
    index: int,
    text: str,
    tokens_from: int,
    tokens_to: int,
    token_text: TokenText,
) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": index, "text": text, "logprobs": None}
    if request.logprobs:
        choice["logprobs"] = _text_logprobs(generation, tokens_from, tokens_to, token_text)
    if request.returns_token_ids:
        choice["token_ids"] = generation.token_ids[tokens_from:tokens_to]
        choice |= _versions(head, generation, tokens_from, tokens_to)
        if tokens_from == 0:
            choice["prompt_token_ids"] = generation.prompt_ids
    return choice


def _text_logprobs(generation: Generation, tokens_from: int, tokens_to: int, token_text: TokenText) -> dict[str, Any]:
    """``text_offset`` counts from the beginning of the answer, in characters of the single tokens' texts."""
    texts = [token_text(token) for token in generation.token_ids[:tokens_to]]
    offsets = [0]
    for text in texts:
        offsets.append(offsets[-1] + len(text))
    best = generation.top[tokens_from:tokens_to] if generation.top else []
    return {
        "tokens": texts[tokens_from:],
        "token_logprobs": generation.logprobs[tokens_from:tokens_to],
        "top_logprobs": [
            {token_text(token): value for token, value in pairs if value > float("-inf")} for pairs in best
        ],
        "text_offset": offsets[tokens_from:tokens_to],
    }
