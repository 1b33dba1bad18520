"""A plain agent: one answer, or a conversation with tools, by the OpenAI interface that every model here has."""

from __future__ import annotations

import json
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpx

from lightstream.schemas.types import LLM

from .environment import EnvironmentFailedError

CONNECT_S = 30.0
ERROR_CHARACTERS = 500


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool of a conversation.

    Attributes:
        name, description: as the model sees them.
        parameters: JSON schema of the arguments.
        call: runs it on arguments; its text is the tool's answer.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    call: Callable[[Mapping[str, Any]], Awaitable[str]]


async def complete(llm: LLM, messages: Sequence[Mapping[str, Any]], tools: Sequence[Tool] = ()) -> dict[str, Any]:
    """The next message of a conversation. It takes as long as it takes: the attempt's time limit ends it.

    Raises:
        EnvironmentFailedError: the model does not answer, or not with a message.
    """
    body: dict[str, Any] = {"model": llm.model, "messages": list(messages), **llm.sampling_parameters}
    if tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": t.name, "description": t.description, "parameters": dict(t.parameters)},
            }
            for t in tools
        ]
    headers = {"authorization": f"Bearer {llm.api_key or 'none'}"}
    try:
        async with httpx.AsyncClient(timeout=httpx.Timeout(None, connect=CONNECT_S), verify=_tls()) as client:
            response = await client.post(f"{llm.endpoint.rstrip('/')}/chat/completions", json=body, headers=headers)
    except httpx.HTTPError as error:
        raise EnvironmentFailedError(f"the model at {llm.endpoint} does not answer: {error!r}.") from error
    if not response.is_success:
        raise EnvironmentFailedError(
            f"the model answered with status {response.status_code}: {response.text[:ERROR_CHARACTERS]}."
        )
    try:
        message: dict[str, Any] = response.json()["choices"][0]["message"]
    except (ValueError, LookupError, TypeError) as error:
        raise EnvironmentFailedError(f"the model answered without a message: {response.text[:200]!r}.") from error
    return message


async def converse(
    llm: LLM, messages: Sequence[Mapping[str, Any]], tools: Sequence[Tool] = (), *, turns_max: int = 10
) -> str:
    """Let a model answer, with tools as often as it asks for them; its last text.

    A tool that fails, or that there is not, is an answer to the model, and no error.

    Args:
        turns_max: answers at most; the tools of the last one are not run.
    """
    known = {tool.name: tool for tool in tools}
    said = list(messages)
    text = ""
    for turn in range(turns_max):
        answer = await complete(llm, said, tools)
        text = answer.get("content") or ""
        calls: list[dict[str, Any]] = answer.get("tool_calls") or []
        if not calls or turn == turns_max - 1:
            break
        said.append({"role": "assistant", "content": answer.get("content"), "tool_calls": calls})
        said += [{"role": "tool", "tool_call_id": call["id"], "content": await _called(known, call)} for call in calls]
    return text


def single_answer(*, system: str = "", template: str = "{input}") -> Callable[..., Awaitable[str]]:
    """An agent that asks the model once, and returns the text of its answer.

    Args:
        system: the system's message; empty: none.
        template: the user's message; ``{input}`` is the task, as JSON where it is no text.
    """

    async def agent(task: Any, llm: LLM) -> str:
        return await converse(llm, opening(task, system, template), turns_max=1)

    return agent


def opening(task: Any, system: str = "", template: str = "{input}") -> list[dict[str, Any]]:
    """The messages that a conversation about a task begins with."""
    text = task if isinstance(task, str) else json.dumps(task, ensure_ascii=False)
    begin = [{"role": "system", "content": system}] if system else []
    return [*begin, {"role": "user", "content": template.replace("{input}", text)}]


@cache
def _tls() -> ssl.SSLContext:
    """Certificates, read once; each call would read them again."""
    return httpx.create_ssl_context()


async def _called(known: Mapping[str, Tool], call: Mapping[str, Any]) -> str:
    function = call.get("function") or {}
    name = str(function.get("name", ""))
    if name not in known:
        return f"Error: there is no tool {name!r}; there are {', '.join(known)}."
    try:
        arguments = json.loads(function.get("arguments") or "{}")
    except ValueError as error:
        return f"Error: the arguments are no JSON: {error}."
    if not isinstance(arguments, dict):
        return "Error: the arguments are no object."
    try:
        return await known[name].call(arguments)
    except Exception as error:  # noqa: BLE001  # a tool may raise anything; the model is told
        return f"Error: {type(error).__name__}: {error}"
