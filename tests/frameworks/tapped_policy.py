"""The real policy server, and a tap between it and the proxy that keeps the server's own record of its answers."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from lightstream.runtime.settings import Settings
from tests.frameworks.model_server import Given, Meeting
from tests.frameworks.processes import ServerProcess

SERVE = """
import sys
from pathlib import Path
from lightstream.runtime.settings import Settings
from lightstream.trainers.servers.cpu import policy_server
from lightstream.trainers.run.model.tiny_model import make_tiny_model
policy_server(Settings.load(), checkpoint=make_tiny_model(Path(sys.argv[1])), follows_resources=False).run()
"""


def policy_process(folder: Path) -> ServerProcess:
    """A policy server with a tiny model."""
    return ServerProcess(Settings.load(data_dir=folder), "policy", SERVE, str(folder / "model"))


class TappedModel:
    """Passes everything on to a real model server, and keeps what it answered, byte for byte as it came."""

    def __init__(self, url: str, meeting: Meeting) -> None:
        self._answers: list[tuple[dict[str, Any], list[bytes]]] = []
        self._meeting = meeting
        self._client = httpx.AsyncClient(base_url=url, timeout=120)
        self.app = Starlette(routes=[Route("/v1/{path:path}", self._pass_on, methods=["GET", "POST"])])

    @property
    def given(self) -> list[Given]:
        """Every answer so far, as the server worded it."""
        return [_read(request, b"".join(pieces)) for request, pieces in self._answers]

    async def _pass_on(self, request: Request) -> Response:
        body = await request.body()
        pieces: list[bytes] = []
        if request.method == "POST":
            asked = json.loads(body)
            await self._meeting.of(Given(asked).rollout_id)
            self._answers.append((asked, pieces))
        headers = {"content-type": "application/json"}
        passed = self._client.build_request(request.method, request.path_params["path"], content=body, headers=headers)
        answer = await self._client.send(passed, stream=True)
        kept = {name: value for name, value in answer.headers.items() if name.startswith(("content-type", "x-light"))}

        async def passed_on() -> AsyncGenerator[bytes]:
            async for piece in answer.aiter_raw():
                pieces.append(piece)  # before anybody sees it
                yield piece
            await answer.aclose()

        return StreamingResponse(passed_on(), answer.status_code, kept)


def _read(request: dict[str, Any], answer: bytes) -> Given:
    given = Given(request)
    for body in _bodies(answer):
        given.response_id = body["id"]
        given.prompt_ids = body.get("prompt_token_ids") or given.prompt_ids
        for choice in body["choices"]:
            given.prompt_ids = choice.get("prompt_token_ids") or given.prompt_ids  # of completions
            given.response_ids.setdefault(choice["index"], []).extend(choice["token_ids"])
            told = choice["logprobs"]
            values = told["token_logprobs"] if "text" in choice else [entry["logprob"] for entry in told["content"]]
            given.logprobs.setdefault(choice["index"], []).extend(values)
    return given


def _bodies(answer: bytes) -> list[dict[str, Any]]:
    """The one object of a whole answer, or those of a stream."""
    if not answer.startswith(b"data: "):
        return [json.loads(answer)]
    lines = [line.removeprefix(b"data: ") for line in answer.splitlines() if line.startswith(b"data: ")]
    return [json.loads(line) for line in lines if line != b"[DONE]"]
