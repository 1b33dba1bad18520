"""Bodies of error answers, one for each kind of API. (OTLP's receivers answer a ``google.rpc.Status``.)"""

from __future__ import annotations

from typing import Any

from lightstream.schemas.errors import LightstreamError


def openai_error(
    message: str, *, status: int, kind: str | None = None, parameter: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """An error of an API like OpenAI's: ``{"error": {"message", "type", "param", "code"}}``.

    Args:
        kind: the ``type``; without one, what the status says.
        parameter: the field of the request that is wrong.
        code: for programs; without one, only 401 has a code.
    """
    if kind is None:
        kind = "invalid_request_error" if status < 500 else "server_error"
    if code is None and status == 401:
        code = "invalid_api_key"
    return {"error": {"message": message, "type": kind, "param": parameter, "code": code}}


def view_error(error: LightstreamError) -> dict[str, Any]:
    """An error of the view's API: ``{"error": {"type", "message", "next_step"}}``."""
    return {"error": {"type": type(error).__name__, "message": error.message, "next_step": error.next_step}}


def store_error(detail: Any, error_type: str = "", next_step: str = "") -> dict[str, Any]:
    """An error of the store's API: ``{"detail", "error_type", "next_step"}``.

    Args:
        detail: a sentence, or the wrong fields as FastAPI lists them.
        error_type: name of the class that a client raises.
    """
    return {"detail": detail, "error_type": error_type, "next_step": next_step}
