"""Hands people's statements on to a view process of their own, so that none of them ends the one that training asks.

The other view has a file of its own. It follows the log by itself, so that ``at_least`` holds there as here.
"""

from __future__ import annotations

import contextlib
from typing import Any, cast

import httpx
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from lightstream.runtime.http.server import unless_disconnected
from lightstream.runtime.services import find
from lightstream.runtime.settings import Settings
from lightstream.runtime.tls import client_context
from lightstream.schemas.errors import ServiceUnavailableError

NAME = "sql"
"""Of the other view: ``lightstream view --name sql``."""

LIST_TIMEOUT_S = 2.0

_PASSED_ON = frozenset({"accept", "authorization", "content-type"})
_PASSED_BACK = ("content-type", "content-encoding", "x-lightstream-")


class PeoplesView:
    """The view that people's statements are handed on to. Belongs to one event loop.

    Args:
        settings: of both views; the other one is found by its announcement in the data folder.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client = httpx.AsyncClient(verify=client_context(settings), timeout=httpx.Timeout(None, connect=5.0))

    async def answer(self, request: Request, body: bytes) -> Response:
        """Answer as the other view does, in pieces. A client that leaves cancels its statement there.

        Raises:
            PeoplesViewAwayError: it does not answer: a statement may have ended it.
            ClientGoneError: the client has left.
        """
        headers = {name: value for name, value in request.headers.items() if name in _PASSED_ON}
        sent = self._client.build_request("POST", f"{self._address()}/v1/sql", content=body, headers=headers)
        try:
            answer = await unless_disconnected(request, self._client.send(sent, stream=True))
        except httpx.TransportError as error:
            raise _away() from error
        return StreamingResponse(
            answer.aiter_raw(),
            answer.status_code,
            {name: value for name, value in answer.headers.items() if name.startswith(_PASSED_BACK)},
            background=BackgroundTask(answer.aclose),
        )

    async def queries(self, request: Request) -> list[Any]:
        """The statements that run there (rows of ``GET /v1/queries``); none where it does not answer."""
        with contextlib.suppress(httpx.TransportError, PeoplesViewAwayError):
            answer = await self._other("GET", "/v1/queries", request)
            if answer.is_success:
                return cast("list[Any]", answer.json()["queries"])
        return []

    async def cancel(self, request: Request, query_id: str) -> Response:
        """Cancel a statement there.

        Raises:
            PeoplesViewAwayError: it does not answer.
        """
        try:
            answer = await self._other("DELETE", f"/v1/queries/{query_id}", request)
        except httpx.TransportError as error:
            raise _away() from error
        return Response(answer.content, answer.status_code, media_type=answer.headers.get("content-type"))

    async def close(self) -> None:
        """Close the connections to it."""
        await self._client.aclose()

    async def _other(self, method: str, path: str, request: Request) -> httpx.Response:
        headers = {name: value for name, value in request.headers.items() if name == "authorization"}
        return await self._client.request(method, self._address() + path, headers=headers, timeout=LIST_TIMEOUT_S)

    def _address(self) -> str:
        service = find(self._settings, f"view-{NAME}")
        if service is None:
            raise _away()
        return service.address


class PeoplesViewAwayError(ServiceUnavailableError):
    """The other view does not answer; it is worth a second try. HTTP 502."""


def _away() -> PeoplesViewAwayError:
    return PeoplesViewAwayError(
        "the view for people's statements does not answer; a statement may have ended it.",
        next_step="Ask again: `lightstream up` starts it again. Without that, run `lightstream view --name sql`.",
    )
