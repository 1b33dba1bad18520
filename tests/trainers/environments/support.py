"""A model that says what a test wants, and attempts without a broker."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.settings import Settings
from lightstream.schemas.types import LLM, Attempt, AttemptedRollout
from lightstream.trainers.environments import Environment, TaskSet

AT_ONCE = 16

Answer = Callable[[list[dict[str, Any]]], str | dict[str, Any]]
"""The messages of a call -> the model's text, or its message."""


@contextmanager
def model(settings: Settings, answer: Answer) -> Generator[LLM]:
    """A model behind OpenAI's interface."""

    async def complete(request: Request) -> Response:
        body = await request.json()
        made = answer(body["messages"])
        message = {"role": "assistant", "content": made} if isinstance(made, str) else made
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        return JSONResponse(
            {
                "id": "c",
                "object": "chat.completion",
                "created": int(time.time()),
                "model": body["model"],
                "choices": [choice],
                "usage": usage,
            }
        )

    server = HttpServer(
        Starlette(routes=[Route("/v1/chat/completions", complete, methods=["POST"])]), settings, name="scripted"
    )
    url = server.start()
    try:
        yield LLM(endpoint=f"{url}/v1", model="scripted")
    finally:
        server.stop()


def attempt_of(tasks: TaskSet, index: int, number: int = 0, **changes: Any) -> AttemptedRollout:
    """An attempt of a task, as a Runner has it."""
    rollout_id = f"r{index}-{number}"
    given: dict[str, Any] = {
        "rollout_id": rollout_id,
        "input": json.loads(json.dumps(tasks[index])),
        "metadata": json.loads(json.dumps(tasks.metadata_of(index))),
        "start_time": 0.0,
        "mode": "train",
        "attempt": Attempt(
            rollout_id=rollout_id, attempt_id=f"{rollout_id}-a1", sequence_id=1, start_time=0.0, status="running"
        ),
    }
    return AttemptedRollout(**given | changes)


def rewards_of(environment: Environment, tasks: TaskSet, llm: LLM, indices: Sequence[int]) -> list[Any]:
    """The reward of a rollout of each of these tasks, or the error that it fails with."""

    async def main() -> list[Any]:
        room = asyncio.Semaphore(AT_ONCE)

        async def one(number: int, index: int) -> Any:
            rollout = attempt_of(tasks, index, number)
            async with room:
                return await environment.rollout_async(rollout.input, {"llm": llm}, rollout)

        return await asyncio.gather(*(one(*place) for place in enumerate(indices)), return_exceptions=True)

    return asyncio.run(main())


def text_of(messages: Sequence[Mapping[str, Any]]) -> str:
    """The text of the last message."""
    return str(messages[-1]["content"])


def task_folder(root: Path, name: str, instruction: str, tests: str, toml: str = "") -> Path:
    """A task folder."""
    folder = root / name
    (folder / "tests").mkdir(parents=True)
    (folder / "instruction.md").write_text(instruction, "utf-8")
    (folder / "tests" / "test.sh").write_text(tests, "utf-8")
    if toml:
        (folder / "task.toml").write_text(toml, "utf-8")
    return folder
