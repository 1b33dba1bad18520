"""A stand-in for vLLM, as a process: its routes, its pauses and its aborts, without a model.

It says the last message of the prompt again and again, and each token is as likely as the *marker* of the weights that
it has read says: so a test sees which version a token is of, whatever the answer claims. It samples no further than a
test allows. Run as ``vllm.entrypoints.openai.api_server``, which :func:`stand_in_options` arranges.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from tokenizers import Tokenizer

from lightstream.trainers import VllmOptions
from lightstream.trainers.run.model.tiny_model import make_tiny_model

POSITIONS_MAX = 4096
MARKER_FILE = "marker"

REFUSED_FILE = "refused"
"""Of weights that do not fit."""

IGNORED_FILE = "ignored"
"""Of weights that are said to be read, and are not; sampling goes on at once."""

FATAL_FILE = "fatal"
"""Of weights that end the process that reads them, unless it starts with them."""


def marked_model(folder: Path, number: int, *, problem: str = "") -> Path:
    """A checkpoint with a marker of its own."""
    make_tiny_model(folder, seed=number)
    (folder / MARKER_FILE).write_text(str(number), "utf-8")
    if problem:
        (folder / problem).touch()
    return folder


def marker_of(logprob: float) -> int:
    """The marker of the weights that sampled a token."""
    return round(-logprob) - 1


def stand_in_options(folder: Path, *arguments: str) -> VllmOptions:
    """Options that start this module in place of vLLM. ``folder`` is for files of ours."""
    package = folder / "packages" / "vllm" / "entrypoints" / "openai"
    package.mkdir(parents=True)
    (package / "api_server.py").write_text(f"from {__name__} import main\n\nmain()\n", "utf-8")
    path = os.pathsep.join([str(folder / "packages"), *sys.path])
    return VllmOptions(arguments=arguments, environment={"PYTHONPATH": path}, start_timeout_s=120, swap_timeout_s=120)


def allow(url: str, tokens: int) -> None:
    """Let every answer have so many tokens, and no more for now."""
    httpx.post(f"{url}/allow", json={"tokens": tokens}, timeout=60).raise_for_status()


@dataclass
class _Vllm:
    """State of the process. ``change`` is notified of all of it."""

    marker: int
    tokenizer: Tokenizer
    allowed: int = 0
    paused: str = ""
    aborts: int = 0
    change: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def set(self, **values: Any) -> None:
        async with self.change:
            for name, value in values.items():
                setattr(self, name, value)
            self.change.notify_all()

    async def may_sample(self, done: int, aborts: int) -> bool:
        """Wait for leave to sample another token; false if the answer is aborted."""
        async with self.change:
            await self.change.wait_for(
                lambda: self.aborts != aborts or (not self.paused and done < self.allowed),
            )
            return self.aborts == aborts

    def logprob(self, place: int) -> float:
        return -1.0 - self.marker - place / 100_000


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path)
    parser.add_argument("--port", type=int)
    options, _ = parser.parse_known_args()
    vllm = _Vllm(_marker(options.model), Tokenizer.from_file(str(options.model / "tokenizer.json")))
    uvicorn.run(_app(vllm), host="127.0.0.1", port=options.port, log_level="warning")


def _app(vllm: _Vllm) -> Starlette:
    async def complete(request: Request) -> Response:
        body = await request.json()
        if body.get("prompt_logprobs") is not None:
            async with vllm.change:
                await vllm.change.wait_for(lambda: not vllm.paused)
            entries = [{str(token): {"logprob": vllm.logprob(0)}} for token in body["prompt"][1:]]
            return JSONResponse({"choices": [{"prompt_logprobs": [None, *entries]}]})
        if not body.get("stream"):
            return JSONResponse({"choices": [{"index": 0, "text": "", "finish_reason": "length"}]})
        return StreamingResponse(_events(vllm, body), media_type="text/event-stream")

    async def chat(request: Request) -> Response:
        """The answer that only vLLM can give: one token, once it is allowed."""
        await vllm.may_sample(0, vllm.aborts)
        return JSONResponse({"choices": [{"index": 0, "message": {"content": f"by {vllm.marker}"}}]})

    async def tokenize(request: Request) -> Response:
        body = await request.json()
        said = body["prompt"] if "prompt" in body else body["messages"][-1]["content"]
        ids: list[int] = vllm.tokenizer.encode(said, add_special_tokens=False).ids
        return JSONResponse({"tokens": [len(ids), *ids], "count": len(ids) + 1, "max_model_len": POSITIONS_MAX})

    async def call_workers(request: Request) -> Response:
        body = await request.json()
        assert body["method"] == "reload_weights"
        folder = Path(body["kwargs"]["weights_path"])
        if (folder / FATAL_FILE).exists():
            os._exit(1)
        if (folder / REFUSED_FILE).exists():
            return JSONResponse({"error": "these weights do not fit"}, 500)
        if (folder / IGNORED_FILE).exists():
            await vllm.set(allowed=POSITIONS_MAX)
        else:
            vllm.marker = _marker(folder)
        return JSONResponse({"results": [None]})

    async def pause(request: Request) -> Response:
        mode = request.query_params["mode"]
        await vllm.set(paused=mode, aborts=vllm.aborts + (mode == "abort"))
        return JSONResponse({"status": "paused"})

    async def resume(_request: Request) -> Response:
        await vllm.set(paused="")
        return JSONResponse({"status": "resumed"})

    async def allow_tokens(request: Request) -> Response:
        await vllm.set(allowed=(await request.json())["tokens"])
        return JSONResponse({})

    async def done(_request: Request) -> Response:
        return JSONResponse({})

    async def models(_request: Request) -> Response:
        return JSONResponse({"data": [{"id": "policy", "max_model_len": POSITIONS_MAX}]})

    routes = {
        "/v1/completions": complete,
        "/v1/chat/completions": chat,
        "/tokenize": tokenize,
        "/collective_rpc": call_workers,
        "/reset_prefix_cache": done,
        "/update_weight_version": done,
        "/pause": pause,
        "/resume": resume,
        "/allow": allow_tokens,
    }
    return Starlette(
        routes=[
            *(Route(path, answer, methods=["POST"]) for path, answer in routes.items()),
            Route("/health", done, methods=["GET"]),
            Route("/v1/models", models, methods=["GET"]),
        ]
    )


async def _events(vllm: _Vllm, body: dict[str, Any]) -> AsyncIterator[bytes]:
    length, *ids = body["prompt"]
    text, done, aborts = ids[:length], len(ids) - length, vllm.aborts
    last = done + body["max_tokens"]
    while await vllm.may_sample(done, aborts):
        token, logprob = text[done % length], vllm.logprob(done)
        done += 1
        name = f"token_id:{token}"
        logprobs = {"token_logprobs": [logprob], "top_logprobs": [{name: logprob, "token_id:0": logprob - 1}]}
        yield _event([token], "length" if done == last else None, logprobs)
        if done == last:
            yield b"data: [DONE]\n\n"
            return
    yield _event([], "abort", None)


def _event(ids: list[int], reason: str | None, logprobs: Any) -> bytes:
    choice = {"index": 0, "text": "", "token_ids": ids, "finish_reason": reason, "logprobs": logprobs}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


def _marker(folder: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return int((folder / MARKER_FILE).read_text("utf-8"))
    return 0
