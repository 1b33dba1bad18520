"""Errors on the wire: ``{"detail", "error_type", "next_step"}`` and a status, and back to the error that was raised.

400  StoreError                    a call that cannot be done; nothing changed
401  SettingsError                 no token, or a wrong one
404  NotFoundError                 the rollout, attempt, resource or worker does not exist; no such route
413                                the body is over the limit
422  ``detail`` lists the fields   the body is not JSON, or a field is missing or of a wrong type; nothing changed
501  NotImplementedError           the store lacks it
503  ServiceUnavailableError       what the store needs does not answer; with ``retry-after``: ask again
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from lightstream.schemas.errors import (
    LightstreamError,
    NotFoundError,
    ServiceUnavailableError,
    SettingsError,
    StoreError,
)

from ._giving_back import Place

__all__ = ["Answer", "error_answer", "no_body_answer", "raised_by", "refusal", "rejected_answer", "worth_a_retry"]

STATUSES: dict[type[LightstreamError], HTTPStatus] = {
    NotFoundError: HTTPStatus.NOT_FOUND,
    StoreError: HTTPStatus.BAD_REQUEST,
    ServiceUnavailableError: HTTPStatus.SERVICE_UNAVAILABLE,
}
"""A subclass comes before its base; any other error of ours is a failure of what the store needs."""

SHOWN_MAX = 200
"""Characters of a wrong value that an answer repeats."""

RETRIED = frozenset(
    {
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.TOO_EARLY,
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)
"""Statuses that only something between client and server gives."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as it goes over the wire.

    Attributes:
        handed_out: the attempts that it tells its client to run; nobody else knows of them.
    """

    status: int
    content: bytes
    headers: dict[str, str] = field(default_factory=dict[str, str])
    handed_out: tuple[Place, ...] = ()


def refusal(
    status: int, detail: Any, error_type: str = "", next_step: str = "", headers: dict[str, str] | None = None
) -> Answer:
    """An answer that says no."""
    body = {"detail": detail, "error_type": error_type, "next_step": next_step}
    return Answer(status, json.dumps(body).encode(), headers or {})


def error_answer(error: LightstreamError | ValueError | NotImplementedError) -> Answer:
    """What the store raised."""
    if isinstance(error, NotImplementedError):
        return refusal(
            HTTPStatus.NOT_IMPLEMENTED, str(error) or "the store does not support this", "NotImplementedError"
        )
    if not isinstance(error, LightstreamError):
        return refusal(HTTPStatus.BAD_REQUEST, str(error), "StoreError")
    status, name = HTTPStatus.SERVICE_UNAVAILABLE, type(error).__name__
    for known, its_status in STATUSES.items():
        if isinstance(error, known):
            status, name = its_status, known.__name__
            break
    return refusal(status, error.message, name, error.next_step)


def rejected_answer(error: ValidationError, place: str = "body") -> Answer:
    """A body (or query string) that is not JSON, or not of the form that the route takes; each field is named."""
    found = error.errors(include_url=False, include_context=False)
    shown = [{"loc": [place, *item["loc"]], "msg": item["msg"], "type": item["type"]} | _given(item) for item in found]
    return refusal(HTTPStatus.UNPROCESSABLE_ENTITY, shown, "StoreError")


def no_body_answer() -> Answer:
    """A request without the body that its route takes."""
    shown = [{"loc": ["body"], "msg": "Field required: the request has no body", "type": "missing"}]
    return refusal(HTTPStatus.UNPROCESSABLE_ENTITY, shown, "StoreError")


def _given(item: ErrorDetails) -> dict[str, Any]:
    """What was given instead, if it is short."""
    value = item.get("input")
    is_short = value is None or isinstance(value, (bool, int)) or (isinstance(value, str) and len(value) <= SHOWN_MAX)
    return {"input": value} if is_short and item["type"] not in ("missing", "json_invalid") else {}


def worth_a_retry(answer: Answer) -> bool:
    """Whether the same request may fare better soon: it did not reach the store, or the store is being restarted."""
    if answer.status == HTTPStatus.SERVICE_UNAVAILABLE:
        return "retry-after" in answer.headers or not _said(answer.content).get("error_type")
    return answer.status in RETRIED


def raised_by(answer: Answer) -> Exception:
    """The error that an answer stands for."""
    said = _said(answer.content)
    message = _text_of(said.get("detail"), answer)
    next_step = str(said.get("next_step") or "")
    if answer.status == HTTPStatus.UNAUTHORIZED:
        return SettingsError(message, next_step=next_step)
    if answer.status == HTTPStatus.NOT_IMPLEMENTED:
        return NotImplementedError(message)
    if answer.status == HTTPStatus.NOT_FOUND and said.get("error_type") == NotFoundError.__name__:
        return NotFoundError(message, next_step=next_step)
    if HTTPStatus.BAD_REQUEST <= answer.status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return StoreError(message, next_step=next_step)
    return ServiceUnavailableError(message, next_step=next_step)


def _said(content: bytes) -> dict[str, Any]:
    try:
        said = json.loads(content)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _text_of(detail: Any, answer: Answer) -> str:
    """``detail`` as one sentence; a field list as ``field: what is wrong``."""
    if isinstance(detail, str):
        return detail
    if isinstance(detail, list) and all(isinstance(item, dict) for item in detail):
        return "; ".join(map(_sentence, detail))
    return f"the store server answered {answer.status}: {answer.content[:200].decode(errors='replace')}"


def _sentence(item: dict[str, Any]) -> str:
    place = ".".join(map(str, item.get("loc", [])[1:])) or "the request"
    instead = f", not {item['input']!r}" if "input" in item else ""
    return f"{place}: {item.get('msg')}{instead}"
