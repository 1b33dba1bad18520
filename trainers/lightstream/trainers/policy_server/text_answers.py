"""Answers to (text) completions in OpenAI's shape, with vLLM's additions in each choice where they were asked for."""

from __future__ import annotations

from typing import Any

from .answers import AnswerHead, TokenText, head_of
from .chat_request import ChatRequest
from .generation import Generation, Job
from .text import Decode

__all__ = ["text_chunk", "text_completion"]

KIND = "text_completion"


def text_completion(head: AnswerHead, request: ChatRequest, job: Job, decode: Decode, token_text: TokenText) -> Any:
    """The whole answer as one JSON object."""
    choices: list[dict[str, Any]] = []
    for index, generation in enumerate(job.generations):
        text = decode(generation.token_ids)
        if generation.text_end is not None:
            text = text[: generation.text_end]
        choice = _choice(request, generation, index, text, 0, len(generation.token_ids), token_text)
        choices.append(choice | {"finish_reason": generation.finish_reason})
    prompt = sum(len(generation.prompt_ids) for generation in job.generations[:: request.choices])
    written = sum(len(generation.token_ids) for generation in job.generations)
    usage = {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}
    return head_of(head, KIND) | {"choices": choices, "usage": usage}


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
    choice = _choice(request, generation, index, text, tokens_from, tokens_to, token_text)
    return head_of(head, KIND) | {"choices": [choice | {"finish_reason": generation.finish_reason if last else None}]}


def _choice(
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
        choice["logprobs"] = _logprobs(generation, tokens_from, tokens_to, token_text)
    if request.returns_token_ids:
        choice["token_ids"] = generation.token_ids[tokens_from:tokens_to]
        if tokens_from == 0:
            choice["prompt_token_ids"] = generation.prompt_ids
    return choice


def _logprobs(generation: Generation, tokens_from: int, tokens_to: int, token_text: TokenText) -> dict[str, Any]:
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
