"""An OpenAI endpoint that stands in for three models: the agent's, a critic of prompts, and an editor.

The agent's model looks at the criteria that its prompt names, and at no other. The critic names one that is missing, or
asks for a polite tone, which helps nobody; the editor adds what it is told.
"""

from __future__ import annotations

import json
import random
import time
import uuid
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse
from starlette.routing import Route

from .agent import fits

__all__ = ["CRITERIA", "CRITIC", "EDITOR", "scripted_endpoint"]

CRITERIA = ("capacity", "equipment", "availability")
CRITIC, EDITOR = "scripted-critic", "scripted-editor"
USELESS = "a polite tone"


def scripted_endpoint() -> Starlette:
    """The endpoint, below ``/v1``."""
    return Starlette(routes=[Route("/v1/chat/completions", _complete, methods=["POST"])])


async def _complete(http: HttpRequest) -> JSONResponse:
    body = await http.json()
    instruction, said = (message["content"] for message in body["messages"])
    answers = {CRITIC: _criticise, EDITOR: _edit}
    answer = answers[body["model"]](said) if body["model"] in answers else _pick(instruction, json.loads(said))
    choice = {"index": 0, "message": {"role": "assistant", "content": answer}, "finish_reason": "stop"}
    usage = {"prompt_tokens": len(said), "completion_tokens": len(answer), "total_tokens": len(said) + len(answer)}
    return JSONResponse(
        {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": body["model"],
            "choices": [choice],
            "usage": usage,
        }
    )


def _pick(instruction: str, asked: dict[str, Any]) -> str:
    looked_at = [criterion for criterion in CRITERIA if criterion in instruction]
    names: list[str] = [
        room["name"]
        for room in asked["rooms"]
        if all(fits(room, asked["request"])[criterion] for criterion in looked_at)
    ]
    return names[0] if names else "none"


def _criticise(said: str) -> str:
    template = _between(said, "<template>\n", "\n</template>")
    missing = [criterion for criterion in CRITERIA if criterion not in template]
    return random.Random(said).choice([*missing, USELESS])


def _edit(said: str) -> str:
    template = _between(said, "<template>\n", "\n</template>")
    return f"{template} Mind {said.rpartition('Critique:')[2].strip()}."


def _between(text: str, before: str, after: str) -> str:
    return text.partition(before)[2].partition(after)[0]
