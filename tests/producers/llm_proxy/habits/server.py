"""Answers of model servers with every habit that was seen: one answer, told whole and as a stream."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]

LETTERS = ("a", "b ", "é", "😀", "\n", '"', "{", "漢", "\\", "\ufffd")
HALF = "\ud83d"
"""Half of a character, alone."""

ARGUMENTS = ('{"a": 1}', "{}", "", '{"text": "😀 é"}', '{"a": ', "[1]", "null", '{"a": {"b": [1, 2]}}', "2.5")
FINISHES = ("stop", "length", "tool_calls", "content_filter", "abort", None)


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool as the model made it; ``id`` is empty where the server gives none."""

    id: str
    name: str
    arguments: str


@dataclass(slots=True)
class Choice:
    """What was sampled; texts may have halves of characters. ``ids`` and ``logprobs`` have one number a token."""

    thinking: str = ""
    text: str = ""
    calls: list[Call] = field(default_factory=list[Call])
    finish: str | None = "stop"
    stop_text: str | None = None
    ids: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])


@dataclass(slots=True)
class Answer:
    """One answer, and how the server tells it."""

    id: str
    choices: list[Choice]
    usage: Json | None
    prompt_ids: list[int]
    thinking_names: tuple[str, ...]
    has_ids: bool
    has_logprobs: bool
    has_model: bool
    has_index: bool


def answer_of(rng: random.Random, choices: int) -> Answer:
    """A random answer."""
    thinks, speaks, acts = (rng.random() < share for share in (0.5, 0.8, 0.5))
    made = [_choice(rng, thinks=thinks, speaks=speaks, acts=acts) for _ in range(choices)]
    usage = {"prompt_tokens": rng.randint(1, 9), "completion_tokens": rng.randint(1, 9)}
    usage["total_tokens"] = usage["prompt_tokens"] + usage["completion_tokens"]
    names = (("reasoning",), ("reasoning_content",), ("reasoning", "reasoning_content"), ("thinking",))
    return Answer(
        f"chatcmpl-{rng.getrandbits(32):08x}",
        made,
        usage if rng.random() < 0.7 else None,
        [rng.randint(0, 99) for _ in range(rng.randint(1, 4))],
        rng.choice(names),
        has_ids=rng.random() < 0.8,
        has_logprobs=rng.random() < 0.8,
        has_model=rng.random() < 0.9,
        has_index=choices > 1 or rng.random() < 0.9,
    )


def _choice(rng: random.Random, *, thinks: bool, speaks: bool, acts: bool) -> Choice:
    calls: list[Call] = []
    if acts:
        with_ids = rng.random() < 0.8
        for number in range(rng.randint(1, 3)):
            name = rng.choice(("add", "look", "add2"))
            calls.append(Call(f"call_{number}" if with_ids else "", name, rng.choice(ARGUMENTS)))
    choice = Choice(
        _text(rng) if thinks else "",
        _text(rng) if speaks or not (thinks or calls) else "",
        calls,
        rng.choice(FINISHES),
        rng.choice((None, "END", "other")),
    )
    choice.ids = [rng.randint(0, 99) for _ in range(rng.randint(1, 6))]
    choice.logprobs = [-rng.random() for _ in choice.ids]
    return choice


def _text(rng: random.Random) -> str:
    text = "".join(rng.choice(LETTERS) for _ in range(rng.randint(1, 6)))
    place = rng.randint(0, len(text))
    return text[:place] + HALF + text[place:] if rng.random() < 0.2 else text


def _logprobs_of(ids: list[int], values: list[float]) -> Json:
    entries: list[Json] = [
        {"token": f"<{token}>", "logprob": value, "bytes": None, "top_logprobs": []}
        for token, value in zip(ids, values, strict=True)
    ]
    return {"content": entries}


def whole(rng: random.Random, answer: Answer, asked: Json) -> bytes:
    """As one body."""
    choices: list[Json] = []
    for number, choice in enumerate(answer.choices):
        message: Json = {"role": "assistant", "content": choice.text or rng.choice((None, ""))}
        if choice.thinking:
            message |= dict.fromkeys(answer.thinking_names, choice.thinking)
        if choice.calls:
            as_object = rng.random() < 0.2
            message["tool_calls"] = [_whole_call(call, as_object=as_object) for call in choice.calls]
        told: Json = {"message": message, "finish_reason": choice.finish, "stop_reason": choice.stop_text}
        if answer.has_index:
            told["index"] = number
        choices.append(told | _tokens(answer, asked, choice.ids, choice.logprobs))
    body: Json = {"id": answer.id, "object": "chat.completion", "created": 1, "choices": choices}
    body |= {"model": "m@4"} if answer.has_model else {}
    body |= {"usage": answer.usage} if answer.usage is not None else {}
    if answer.has_ids and asked.get("return_token_ids"):
        body["prompt_token_ids"] = answer.prompt_ids
    return json.dumps(body).encode()


def _whole_call(call: Call, *, as_object: bool) -> Json:
    parsed = json.loads(call.arguments) if as_object and _is_plain_object(call.arguments) else call.arguments
    ids = {"id": call.id} if call.id else {}
    return ids | {"type": "function", "function": {"name": call.name, "arguments": parsed}}


def _is_plain_object(text: str) -> bool:
    """Whether the object, written by anyone, has this very text."""
    return text == "{}"


def _tokens(answer: Answer, asked: Json, ids: list[int], logprobs: list[float]) -> Json:
    told: Json = {}
    if answer.has_ids and asked.get("return_token_ids"):
        told["token_ids"] = ids
    if answer.has_logprobs and asked.get("logprobs") and ids:
        told["logprobs"] = _logprobs_of(ids, logprobs)
    return told


def streamed(rng: random.Random, answer: Answer, asked: Json) -> list[bytes]:
    """As pieces of a stream, cut anywhere."""
    of_choices = [list(_deltas(rng, answer, choice)) for choice in answer.choices]
    chunks: list[Json] = []
    pending = {number: [None, *deltas] for number, deltas in enumerate(of_choices)}
    spent = dict.fromkeys(pending, 0)
    role = rng.choice(("first", "every", "never"))
    finish_apart = rng.random() < 0.6
    while pending:
        number = rng.choice(list(pending))
        choice, delta = answer.choices[number], pending[number].pop(0)
        is_first, is_last = delta is None, not pending[number]
        told_delta = dict(delta or {})
        if role == "every" or (role == "first" and is_first):
            told_delta["role"] = "assistant"
        end = len(choice.ids) if is_last else min(len(choice.ids), spent[number] + rng.randint(0, 2))
        ids, logprobs = choice.ids[spent[number] : end], choice.logprobs[spent[number] : end]
        spent[number] = end
        told: Json = {"delta": told_delta} | _tokens(answer, asked, ids, logprobs)
        if answer.has_index:
            told["index"] = number
        if is_last and not finish_apart:
            told |= {"finish_reason": choice.finish, "stop_reason": choice.stop_text}
        elif rng.random() < 0.7:
            told["finish_reason"] = None
        chunks.append({"choices": [told]})
        if is_last:
            del pending[number]
            if finish_apart:
                end_of: Json = {
                    "delta": rng.choice(({}, {"content": ""}, {"content": None})),
                    "finish_reason": choice.finish,
                }
                end_of |= {"stop_reason": choice.stop_text} | ({"index": number} if answer.has_index else {})
                chunks.append({"choices": [end_of]})
    if answer.has_ids and asked.get("return_token_ids"):
        chunks[0]["prompt_token_ids"] = answer.prompt_ids
    if answer.usage is not None:
        if rng.random() < 0.5:
            chunks.append({"choices": []})
        chunks[-1]["usage"] = answer.usage
    head: Json = {"id": answer.id, "object": "chat.completion.chunk", "created": 1}
    head |= {"model": "m@4"} if answer.has_model else {}
    events = [b"data: " + json.dumps(head | chunk).encode() for chunk in chunks]
    events = [event for each in events for event in ([b": ping", each] if rng.random() < 0.1 else [each])]
    has_ends = all(choice.finish is not None for choice in answer.choices)
    if not has_ends or rng.random() < 0.8:
        events.append(rng.choice((b"data: [DONE]", b"data:[DONE]")))
        if rng.random() < 0.2:
            events.append(b'data: {"error": {"message": "after the end"}}')
    line_end = rng.choice((b"\n", b"\r\n"))
    return list(_cut(rng, b"".join(event + line_end * 2 for event in events)))


def _cut(rng: random.Random, data: bytes) -> Iterator[bytes]:
    longest = rng.choice((1, 7, 100, 10_000))
    place = 0
    while place < len(data):
        end = place + rng.randint(1, longest)
        yield data[place:end]
        place = end


def _deltas(rng: random.Random, answer: Answer, choice: Choice) -> Iterator[Json]:
    for piece in _pieces(rng, choice.thinking):
        yield dict.fromkeys(answer.thinking_names, piece)
    for piece in _pieces(rng, choice.text):
        yield {"content": piece}
    yield from rng.choice(CALL_HABITS)(rng, choice.calls)


def _pieces(rng: random.Random, text: str) -> Iterator[str]:
    """The text in pieces; a pair of surrogates may be torn apart, as a server in JavaScript or Java does."""
    units = text.encode("utf-16-le", "surrogatepass")
    place = 0
    while place < len(units):
        end = place + 2 * rng.randint(1, 4)
        yield units[place:end].decode("utf-16-le", "surrogatepass")
        place = end


def _text_pieces(rng: random.Random, text: str) -> Iterator[str]:
    place = 0
    while place < len(text):
        end = place + rng.randint(1, 4)
        yield text[place:end]
        place = end


def _ids(call: Call) -> Json:
    return {"id": call.id, "type": "function"} if call.id else {"type": "function"}


def _one_after_another(rng: random.Random, calls: list[Call]) -> Iterator[Json]:
    repeats = rng.random() < 0.3
    for index, call in enumerate(calls):
        begun = {"index": index} | _ids(call) | {"function": {"name": call.name, "arguments": ""}}
        yield {"tool_calls": [begun]}
        for piece in _text_pieces(rng, call.arguments):
            # Without an id, a repeated name could as well be another call's.
            again = _ids(call) | {"function": {"name": call.name}} if repeats and call.id else {"function": {}}
            again["function"]["arguments"] = piece
            yield {"tool_calls": [{"index": index} | again]}


def _at_once(rng: random.Random, calls: list[Call]) -> Iterator[Json]:
    """All begin in one chunk, then their arguments come in turns."""
    if not calls:
        return
    begun = [
        {"index": i} | _ids(call) | {"function": {"name": call.name, "arguments": ""}} for i, call in enumerate(calls)
    ]
    yield {"tool_calls": begun}
    left = {index: list(_text_pieces(rng, call.arguments)) for index, call in enumerate(calls)}
    while left := {index: pieces for index, pieces in left.items() if pieces}:
        index = rng.choice(list(left))
        yield {"tool_calls": [{"index": index, "function": {"arguments": left[index].pop(0)}}]}


def _whole_calls(rng: random.Random, calls: list[Call]) -> Iterator[Json]:
    """Each in one piece: all with index 0, where ids tell them apart, or without any; arguments may be objects."""
    index = rng.choice(({"index": 0}, {}))
    for call in calls:
        has_own = bool(call.id) or not index
        as_object = rng.random() < 0.3
        entry = _whole_call(call, as_object=as_object)
        yield {"tool_calls": [(index if has_own else {}) | entry]}


CALL_HABITS: tuple[Callable[[random.Random, list[Call]], Iterator[Json]], ...] = (
    _one_after_another,
    _at_once,
    _whole_calls,
)
