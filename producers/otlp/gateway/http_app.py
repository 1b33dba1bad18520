"""OTLP over HTTP.

Source: OTLP specification 1.x, "OTLP/HTTP". One port for protobuf and JSON, told apart by ``Content-Type``.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lightstream.runtime.http.body import ENCODINGS, BodyPieces, Unpacker
from lightstream.runtime.http.door import Door
from lightstream.runtime.http.server import CLIENT_GONE, BodyTooLargeError, ClientGoneError
from lightstream.runtime.http.tokens import INGEST
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import DecodeError, PublishError, ServiceUnavailableError

from ...attribution import UNATTRIBUTED, Attribution
from ..decode import Rejection
from .budget import ByteBudget, Hold
from .intake import Intake
from .request_headers import PATH_ATTRIBUTION, RolloutPath, attribution_of_request, authorizations_in, gateway_access
from .responses import RETRY_AFTER_S, Signal, Trouble, message_bytes, success, trouble_status

logger = logging.getLogger(__name__)

JSON = "application/json"
PROTOBUF = "application/x-protobuf"
MEDIA_TYPES = {PROTOBUF: False, "application/protobuf": False, JSON: True}
"""Media type -> whether it is JSON."""


class Taking(Protocol):
    """Makes the items of a request durable; :class:`Intake` documents its methods."""

    async def take(
        self, signal: Signal, body: bytes, *, as_json: bool, fallback: Attribution = UNATTRIBUTED, origin: str
    ) -> list[Rejection]: ...

    async def set_aside(self, error: DecodeError, body: bytes, origin: str) -> None: ...


def traces_endpoint(settings: Settings, intake: Taking) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint for traces over HTTP in another application, which checks access itself."""
    gateway = _HttpGateway(
        settings.model_copy(update={"gateway_token": None, "gateway_basic_auth": None, "tokens_file": None})
    )
    gateway.intake = intake
    gateway.budget = ByteBudget(settings.send_buffer_bytes_max, settings.gateway_wait_s)

    async def export(request: Request) -> Response:
        return await gateway.export(Signal.TRACES, request)

    return export


def create_app(
    settings: Settings,
    make_intake: Callable[[], Intake],
    beside: Callable[[Intake, ByteBudget], AbstractAsyncContextManager[None]] | None = None,
) -> Starlette:
    """The ASGI application.

    Args:
        make_intake: called in the event loop; closed after the last request.
        beside: runs while requests are taken; what it does at its end comes before the intake is closed.
    """
    app = _HttpGateway(settings)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        app.intake = intake = make_intake()
        app.budget = budget = ByteBudget(settings.send_buffer_bytes_max, settings.gateway_wait_s)
        try:
            async with contextlib.nullcontext() if beside is None else beside(intake, budget):
                yield
        finally:
            intake.close()

    def endpoint(signal: Signal) -> Callable[..., object]:
        async def export(request: Request) -> Response:
            return await app.export(signal, request)

        return export

    async def health(_request: Request) -> Response:
        return Response(b'{"status":"ok"}', media_type=JSON)

    routes = [
        Route(f"/v1/{signal.value}{slash}", endpoint(signal), methods=["POST"])
        for signal in Signal
        for slash in ("", "/")
    ]
    routes.append(Route("/healthz", health, methods=["GET"]))
    door = Middleware(Door, access=gateway_access(settings), refuse=_turned_away, media_types=None)
    return Starlette(routes=routes, lifespan=lifespan, middleware=[door, Middleware(RolloutPath)])


class _HttpGateway:
    """State that the routes share."""

    intake: Taking
    budget: ByteBudget

    def __init__(self, settings: Settings) -> None:
        self._limit_bytes = settings.gateway_request_bytes_max
        self._access = gateway_access(settings)

    async def export(self, signal: Signal, request: Request) -> Response:
        pieces = BodyPieces(request.receive)
        media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        as_json = MEDIA_TYPES.get(media_type, False)
        try:
            status = self._access.refusal(*authorizations_in(request.headers), scopes=(INGEST,))
            if status == Trouble.NO_SCOPE.http_status:
                return _refusal(Trouble.NO_SCOPE, f"a token with the scope {INGEST} is needed.", as_json=as_json)
            if status is not None:
                return _refusal(Trouble.NO_ACCESS, "a valid authorization header is needed.", as_json=as_json)
            if media_type not in MEDIA_TYPES:
                types = " or ".join(MEDIA_TYPES)
                return _refusal(Trouble.OTHER_MEDIA, f"Content-Type is {media_type!r}; it must be {types}.")
            encoding = request.headers.get("content-encoding", "").strip().lower()
            if encoding not in ENCODINGS:
                encodings = ", ".join(filter(None, ENCODINGS))
                message = f"Content-Encoding is {encoding!r}; it must be {encodings}."
                return _refusal(Trouble.OTHER_MEDIA, message, as_json=as_json)
            async with self.budget.hold() as hold:
                return await self._take(signal, request, pieces, encoding, hold, as_json=as_json)
        except BodyTooLargeError as error:
            logger.warning("a %s request was refused: %s", signal.value, error)
            await pieces.discard_rest()
            return _refusal(Trouble.TOO_LARGE, str(error), as_json=as_json)
        except (PublishError, ServiceUnavailableError) as error:
            return _refusal(Trouble.NOT_DURABLE, str(error), as_json=as_json)
        except DecodeError as error:
            return _refusal(Trouble.NOT_OTLP, str(error), as_json=as_json)
        except ClientGoneError:
            return Response(status_code=CLIENT_GONE)

    async def _take(
        self, signal: Signal, request: Request, pieces: BodyPieces, encoding: str, hold: Hold, *, as_json: bool
    ) -> Response:
        length = request.headers.get("content-length", "")
        if length.isdecimal() and int(length) > self._limit_bytes:
            limit = f"at most {self._limit_bytes:,} are accepted"
            raise BodyTooLargeError(f"the request has {int(length):,} bytes; {limit}.")
        origin = f"otlp/v1/{signal.value}"
        unpacker = Unpacker(encoding, self._limit_bytes)
        raw = b""
        try:
            async for piece in pieces:
                raw = raw or piece
                unpacker.feed(piece)
                await hold.add(unpacker.size_bytes - hold.size_bytes)
            body = unpacker.finish()
        except DecodeError as error:
            await self.intake.set_aside(error, raw, origin)
            raise
        fallback = attribution_of_request(request.scope.get(PATH_ATTRIBUTION, UNATTRIBUTED), request.headers)
        rejections = await self.intake.take(signal, body, as_json=as_json, fallback=fallback, origin=origin)
        content = message_bytes(success(signal, rejections), as_json=as_json)
        return Response(content, media_type=JSON if as_json else PROTOBUF)


def _turned_away(status: int, message: str) -> Response:
    return _refusal(Trouble.NO_SCOPE if status == Trouble.NO_SCOPE.http_status else Trouble.NOT_OTLP, message)


def _refusal(trouble: Trouble, message: str, *, as_json: bool = False) -> Response:
    headers = {"retry-after": str(RETRY_AFTER_S)} if trouble is Trouble.NOT_DURABLE else {}
    if trouble is Trouble.NO_ACCESS:
        headers["www-authenticate"] = 'Bearer, Basic realm="lightstream"'
    content = message_bytes(trouble_status(trouble, message), as_json=as_json)
    return Response(content, trouble.http_status, headers, media_type=JSON if as_json else PROTOBUF)
