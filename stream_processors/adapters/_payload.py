"""The payload of a triplet: token ids, messages, images, metadata."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from lightstream.schemas.attribute_names import AGL_OPERATION_INPUT, AGL_OPERATION_OUTPUT
from lightstream.schemas.packing import unpack_float32, unpack_int32
from lightstream.schemas.records import SpanRecord
from lightstream.schemas.types import Span, Triplet

from ..core.assembly import Observation
from ..core.dialects import ReadCall, is_list, is_map, parse_json, read_calls
from ..core.messages import in_order, read_conversation, unflattened
from ._records import record_of


def triplet_of(span: Span, agent_name: str) -> Triplet:
    """The triplet of one span, without its reward; of several choices the first."""
    record = record_of(span)
    read = next(iter(read_calls(record)), None) or ReadCall("none")
    prompt_content, response_content = _contents(record)
    response: dict[str, Any] = {"token_ids": token_ids(read.response_token_ids), "raw_content": response_content}
    logprobs = _logprobs(record, read)
    if logprobs is not None:
        response["logprobs"] = logprobs
    return Triplet(
        prompt={
            "token_ids": token_ids(read.prompt_token_ids),
            "raw_content": prompt_content,
            "image_urls": image_urls(prompt_content),
        },
        response=response,
        metadata={
            "request": _without(_first(record, "gen_ai.request", AGL_OPERATION_INPUT), "messages"),
            "response": _without(
                _first(record, "gen_ai.response", AGL_OPERATION_OUTPUT),
                "choices",
                "prompt_token_ids",
                "response_token_ids",
            ),
            "response_id": read.response_id,
            "agent_name": agent_name,
        },
    )


def completed(triplet: Triplet, calls: Sequence[Observation]) -> list[Triplet]:
    """With the token ids that other spans give for the call; one triplet per choice where the span holds several."""
    if not is_map(triplet.prompt) or not is_map(triplet.response):
        return [triplet]  # a subclass's own shape
    if len(calls) < 2:  # one choice
        lacks = bool(calls) and not has_tokens(triplet) and calls[0].read.has_tokens
        return [_with_tokens(triplet, calls[0].read)] if lacks else [triplet]
    choices = [_with_tokens(triplet, call.read) for call in calls]
    for choice, call in zip(choices, calls, strict=True):
        choice.metadata["choice_index"] = call.read.choice_index
    return choices


def has_tokens(triplet: Triplet) -> bool:
    """Whether prompt and response have token ids."""
    return all(is_map(part) and bool(part.get("token_ids")) for part in (triplet.prompt, triplet.response))


def token_ids(packed: bytes | None) -> list[int]:
    """As a list; empty for none, and for bytes that are not int32."""
    return unpack_int32(packed).tolist() if packed is not None and len(packed) % 4 == 0 else []


def image_urls(messages: Any) -> list[str]:
    """URLs of the ``image_url`` parts of messages: a list, a mapping numbered 0, 1, … or one message."""
    if is_map(messages):
        messages = in_order(messages) or [messages]
    urls: list[str] = []
    for message in messages if is_list(messages) else ():
        parts = parse_json(message.get("content")) if is_map(message) else None
        for part in parts if is_list(parts) else ():
            image = part.get("image_url") if is_map(part) and part.get("type") == "image_url" else None
            if is_map(image) and "url" in image:
                urls.append(image["url"])
    return urls


def _with_tokens(triplet: Triplet, read: ReadCall) -> Triplet:
    response = {**triplet.response, "token_ids": token_ids(read.response_token_ids)}
    if read.response_logprobs is not None and len(read.response_logprobs) % 4 == 0:
        response["logprobs"] = _as_content(read.response_logprobs)
    return triplet.model_copy(
        update={
            "prompt": {**triplet.prompt, "token_ids": token_ids(read.prompt_token_ids)},
            "response": response,
            "metadata": dict(triplet.metadata),
        }
    )


def _contents(record: SpanRecord) -> tuple[Any, Any]:
    """Messages sent and received, as recorded where they are flat attributes, else as chat messages."""
    prompt = _first(record, "gen_ai.prompt", f"{AGL_OPERATION_INPUT}.messages")
    answered = _first(record, "gen_ai.completion", f"{AGL_OPERATION_OUTPUT}.choices")
    if prompt is None and answered is None:
        conversation = read_conversation(record)
        if conversation is not None:
            return conversation.messages or None, conversation.answer or None
    return prompt, answered


def _first(record: SpanRecord, *prefixes: str) -> Any:
    return next((found for prefix in prefixes if (found := unflattened(record.attributes, prefix))), None)


def _without(value: Any, *names: str) -> Any:
    return {key: item for key, item in value.items() if key not in names} if is_map(value) else value


def _logprobs(record: SpanRecord, read: ReadCall) -> Any:
    """As OpenAI's ``logprobs.content``: recorded as it was, else a list of ``{"logprob": number}``."""
    recorded = record.attributes.get("logprobs.content")
    if isinstance(recorded, str):
        try:
            return json.loads(recorded)
        except (ValueError, RecursionError):
            return None
    packed = read.response_logprobs
    return None if packed is None or len(packed) % 4 else _as_content(packed)


def _as_content(packed: bytes) -> list[dict[str, float]]:
    return [{"logprob": value} for value in unpack_float32(packed)]
