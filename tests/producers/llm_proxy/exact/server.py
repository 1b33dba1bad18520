"""A model server that speaks as vLLM does, samples at random, and keeps a record of what it sampled."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any, TypeAlias

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from .sampling import VOCABULARY, Group, Sampled, Token, groups, sample

PROMPT_TOKENS_MAX = 60
PIECE_BYTES_MAX = 700
"""Of the network's pieces: an event is in several of them, or several events are in one."""

NUMBER = re.compile(rb"call (\d+):")
"""Each request says in its prompt which one it is."""

Json: TypeAlias = dict[str, Any]
WriteChoice: TypeAlias = Callable[[Json, Sampled], Json]
WriteGroup: TypeAlias = Callable[[Json, Sampled, Group], Json]


class RecordingServer:
    """The application, and its record.

    Attributes:
        record: response id -> its choices, in order.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.record: dict[str, list[Sampled]] = {}
        self.app = Starlette(
            routes=[
                Route("/v1/chat/completions", self._chat, methods=["POST"]),
                Route("/v1/completions", self._completions, methods=["POST"]),
            ]
        )

    async def _chat(self, request: Request) -> Response:
        return await self._answer(request, "chat.completion", _chat_choice, _chat_group)

    async def _completions(self, request: Request) -> Response:
        return await self._answer(request, "text_completion", _text_choice, _text_group)

    async def _answer(self, request: Request, kind: str, whole: WriteChoice, group: WriteGroup) -> Response:
        body = await request.body()
        found = NUMBER.search(body)
        assert found is not None, "a request without its number"
        rng = random.Random(f"{self._seed} server {found[1]!r}")
        asked = json.loads(body)
        response_id = f"{kind}-{int(found[1])}"
        assert response_id not in self.record, "asked twice"
        choices = self.record[response_id] = _sampled(rng, asked)
        head: Json = {"id": response_id, "object": kind, "created": 1, "model": "m@4"}
        usage = {
            "prompt_tokens": len(choices[0].prompt_token_ids),
            "completion_tokens": sum(len(choice.tokens) for choice in choices),
        }
        usage["total_tokens"] = sum(usage.values())
        if not asked.get("stream"):
            answer = head | {"choices": [whole(asked, choice) for choice in choices], "usage": usage}
            if asked.get("return_token_ids") and kind == "chat.completion":
                answer["prompt_token_ids"] = choices[0].prompt_token_ids
            return Response(json.dumps(answer, ensure_ascii=False), media_type="application/json")
        if kind == "chat.completion":
            head["object"] = "chat.completion.chunk"
        events = [json.dumps(head | body, ensure_ascii=False) for body in _stream(rng, asked, choices, group)]
        if (asked.get("stream_options") or {}).get("include_usage"):
            events.append(json.dumps(head | {"choices": [], "usage": usage}))
        return StreamingResponse(_pieces(rng, [*events, "[DONE]"]), media_type="text/event-stream")


def _sampled(rng: random.Random, asked: Json) -> list[Sampled]:
    prompt = asked.get("prompt")
    prompts = len(prompt) if isinstance(prompt, list) else 1
    n = asked.get("n") or 1
    choices: list[Sampled] = []
    for number in range(prompts):
        ids = tuple(rng.randrange(VOCABULARY) for _ in range(rng.randint(1, PROMPT_TOKENS_MAX)))
        for index in range(number * n, (number + 1) * n):
            structured = bool(asked.get("response_format"))
            choices.append(sample(rng, index, ids, tools=bool(asked.get("tools")), structured=structured))
    return choices


def _stream(rng: random.Random, asked: Json, choices: list[Sampled], write: WriteGroup) -> Iterator[Json]:
    """The chunks of all choices, which take turns at random."""
    if write is _chat_group:
        for choice in choices:
            opening: Json = {"index": choice.index, "delta": {"role": "assistant", "content": ""}, "logprobs": None}
            chunk: Json = {"choices": [opening | {"finish_reason": None}]}
            if asked.get("return_token_ids"):
                chunk["prompt_token_ids"] = choice.prompt_token_ids
            yield chunk
    waiting = [(choice, list(groups(rng, choice))) for choice in choices]
    while waiting:
        choice, left = rng.choice(waiting)
        group = left.pop(0)
        said = write(asked, choice, group)
        if group.last and rng.random() < 0.3:  # some servers end with a chunk of its own
            silent: Json = {"delta": {}} if "delta" in said else {"text": "", "logprobs": None}
            yield {"choices": [said | {"finish_reason": None}]}
            yield {"choices": [silent | {name: said[name] for name in ("index", "finish_reason")}]}
        else:
            yield {"choices": [said]}
        if not left:
            waiting = [(other, more) for other, more in waiting if other is not choice]


async def _pieces(rng: random.Random, events: list[str]) -> AsyncGenerator[bytes]:
    line_end = rng.choice(("\n", "\n", "\r\n"))
    stream = "".join(f"{rng.choice(('', '', ': ping' + 2 * line_end))}data: {event}{2 * line_end}" for event in events)
    data, begin = stream.encode(), 0
    while begin < len(data):
        end = begin + rng.randint(1, PIECE_BYTES_MAX)
        yield data[begin:end]
        await asyncio.sleep(0)  # others have the loop, and pieces go out one by one
        begin = end


def _ids(asked: Json, tokens: list[Token] | tuple[Token, ...]) -> Json:
    return {"token_ids": [token.token_id for token in tokens]} if asked.get("return_token_ids") else {}


def _chat_logprobs(asked: Json, tokens: list[Token] | tuple[Token, ...]) -> Json | None:
    if not asked.get("logprobs"):
        return None
    content = [
        {
            "token": token.data.decode("utf-8", "replace"),
            "logprob": token.logprob,
            "bytes": list(token.data),
            "top_logprobs": [],
        }
        for token in tokens
    ]
    return {"content": content}


def _chat_choice(asked: Json, choice: Sampled) -> Json:
    calls = [
        {"id": f"call-{choice.index}-{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for number, (name, arguments) in enumerate(choice.tool_calls)
    ]
    said: Json = {
        "index": choice.index,
        "message": {"role": "assistant", "content": choice.text or (None if calls else ""), "tool_calls": calls},
        "finish_reason": choice.finish_reason,
        "logprobs": _chat_logprobs(asked, choice.tokens),
    }
    return said | _ids(asked, choice.tokens)


def _chat_group(asked: Json, choice: Sampled, group: Group) -> Json:
    delta: Json = {"content": group.text} if group.text else {}
    if group.part.tool:
        number = sum(bool(part.tool) for part in choice.parts[: group.part_number])
        call: Json = {"index": number, "function": {"arguments": group.text}}
        if group.begins:
            call |= {"id": f"call-{choice.index}-{number}", "type": "function"}
            call["function"]["name"] = group.part.tool
        delta = {"tool_calls": [call]} if group.begins or group.text else {}
    said: Json = {
        "index": choice.index,
        "delta": delta,
        "finish_reason": choice.finish_reason if group.last else None,
        "logprobs": _chat_logprobs(asked, group.tokens),
    }
    return said | _ids(asked, group.tokens)


def _text_logprobs(asked: Json, tokens: list[Token] | tuple[Token, ...]) -> Json | None:
    if asked.get("logprobs") is None:
        return None
    texts = [token.data.decode("utf-8", "replace") for token in tokens]
    return {
        "tokens": texts,
        "token_logprobs": [token.logprob for token in tokens],
        "top_logprobs": [{text: token.logprob} for text, token in zip(texts, tokens, strict=True)],
        "text_offset": [0] * len(texts),
    }


def _text_choice(asked: Json, choice: Sampled) -> Json:
    said: Json = {
        "index": choice.index,
        "text": choice.text,
        "finish_reason": choice.finish_reason,
        "logprobs": _text_logprobs(asked, choice.tokens),
    }
    prompt = {"prompt_token_ids": choice.prompt_token_ids} if asked.get("return_token_ids") else {}
    return said | _ids(asked, choice.tokens) | prompt


def _text_group(asked: Json, choice: Sampled, group: Group) -> Json:
    said: Json = {
        "index": choice.index,
        "text": group.text,
        "finish_reason": choice.finish_reason if group.last else None,
        "logprobs": _text_logprobs(asked, group.tokens),
    }
    prompt = {"prompt_token_ids": choice.prompt_token_ids} if asked.get("return_token_ids") and group.begins else {}
    return said | _ids(asked, group.tokens) | prompt
