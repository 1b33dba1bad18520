"""Answers of a model server: a completion, an error with or without the status of one, or neither. Pure."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from pydantic_core import to_json

from .events import event_of
from .json_text import read_json
from .upstream import UpstreamError

ERROR_TEXT_MAX = 2000
"""Characters of an upstream's error that go into the record."""

SERVER_LOG = "The server's own log says why; the agent may ask again."

IS_IT_ONE = (
    "Is it a server with OpenAI's interface? LIGHTSTREAM_LLM_UPSTREAM_URL is its base URL, which mostly ends in /v1."
)


def shown(body: bytes | None) -> str:
    """The beginning of a body, for a message."""
    return (body or b"")[:ERROR_TEXT_MAX].decode("utf-8", errors="replace")


def json_answer_in(content: bytes, what: str = "JSON object") -> dict[str, Any]:
    """The object in the body of a whole answer.

    Raises:
        UpstreamError: it is another body, or an error.
    """
    try:
        body: Any = read_json(content)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise UpstreamError(f"the LLM server's answer is not a {what}: {shown(content)}. {IS_IT_ONE}", status=502)
    refused = error_in(body)
    if refused is not None:
        raise UpstreamError(f"the LLM server answered with an error: {refused[1]}. {SERVER_LOG}", status=refused[0])
    return body


def completion_in(content: bytes) -> dict[str, Any]:
    """The body of a whole completion.

    Raises:
        UpstreamError: it is another body, or an error.
    """
    body = json_answer_in(content, "completion")
    if not isinstance(body.get("choices"), list):
        raise UpstreamError(f"the LLM server's answer is not a completion: {shown(content)}. {IS_IT_ONE}", status=502)
    if not any(isinstance(choice, dict) for choice in body["choices"]):
        raise UpstreamError(f"the LLM server's answer has no choice. {SERVER_LOG}", status=502)
    return body


def error_in(body: dict[str, Any]) -> tuple[int, str] | None:
    """Status and message of an error in the body of an answer, or in an event of a stream."""
    error: Any = body.get("error")
    if not error and (body.get("object") == "error" or body.get("type") == "error"):
        error = body
    if not error:
        return _error_of_choice(body.get("choices"))
    fields: dict[str, Any] = error if isinstance(error, dict) else {}
    message = fields.get("message") or fields.get("detail")
    text = message if isinstance(message, str) else error if isinstance(error, str) else to_json(error).decode()
    codes: tuple[Any, ...] = (fields.get("code"), fields.get("status"), body.get("code"))
    statuses = [int(code) for code in codes if str(code).isdecimal() and 400 <= int(str(code)[:4]) <= 599]
    return next(iter(statuses), HTTPStatus.BAD_GATEWAY), text[:ERROR_TEXT_MAX].rstrip(".")


def _error_of_choice(choices: Any) -> tuple[int, str] | None:
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict) and (choice.get("error") or choice.get("finish_reason") == "error"):
            message = error_in({"error": choice.get("error") or "its finish reason is 'error', and it says no more"})
            if message is not None:
                return message
    return None


def as_stream(body: dict[str, Any]) -> list[bytes]:
    """A whole answer as the events of a stream, for a server that does not stream."""
    choices: list[Any] = []
    for choice in body["choices"]:
        if isinstance(choice, dict) and isinstance(choice.get("message"), dict):
            kept = {name: value for name, value in choice.items() if name != "message"}
            choices.append(kept | {"delta": choice["message"]})
        else:
            choices.append(choice)
    chunk = body | {"choices": choices} | ({"object": "chat.completion.chunk"} if "object" in body else {})
    return [event_of(to_json(chunk)), event_of(b"[DONE]")]
