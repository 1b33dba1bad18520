"""The LLM proxy's HTTP interface: OpenAI's and Anthropic's, with rollout and attempt in the URL or in headers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any

from pydantic_core import to_json
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lightstream.runtime.clock import Clock, SystemClock
from lightstream.runtime.http.access import Access, access_of, bearer_token
from lightstream.runtime.http.attempt_keys import attempt_secret, is_attempt_key, is_key_of
from lightstream.runtime.http.door import Door
from lightstream.runtime.http.own_tokens import token_of
from lightstream.runtime.http.server import BodyTooLargeError, ClientGoneError, client_gone
from lightstream.runtime.http.tokens import INGEST, READ
from lightstream.runtime.kafka import Publisher
from lightstream.runtime.redaction import Redaction
from lightstream.runtime.schema_registry import codec_for
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import LightstreamError

from .call import Call, Reply, caller_of
from .dialects import ANTHROPIC_MESSAGES, CHAT, COMPLETIONS, EMBEDDINGS, Dialect, ResponsesDialect
from .dialects.messages import counted_tokens
from .exchange import Exchange, error_reply, response_of
from .recording import CallRecorder
from .releases import Releases
from .request_body import UnreadableBodyError, json_object, unpacked_body
from .rewards import RewardRecorder
from .upstream import Upstream

ATTEMPT = "/rollout/{rollout_id}/attempt/{attempt_id}"

REWARD_BYTES_MAX = 64 * 1024

PREFIXES = tuple(
    seed + owner + version
    for seed in ("", "/seed/{run_seed:int}")
    for owner in ("", ATTEMPT)
    for version in ("/v1", "", "/v1/v1")
)
"""Before each path. Some clients take a base URL with ``/v1``, some without, and Anthropic's adds its own."""

WRONG_KEY = (
    "the key is not of this attempt. A program has the key of its own attempt alone; where Runner and proxy have "
    "different data folders, give both the same LIGHTSTREAM_PROXY_TOKEN"
)

Handler = Callable[[Request], Awaitable[Response]]


def proxy_access(settings: Settings) -> Access:
    """The tokens that clients send as their API key, if the settings name any."""
    return access_of(settings, token_of(settings, "proxy_token"))


def create_app(
    settings: Settings,
    upstream: Upstream,
    publisher: Publisher,
    *,
    clock: Clock | None = None,
    stop: Callable[[], object] = lambda: None,
    gives_ids: bool = False,
    releases: Releases | None = None,
) -> Starlette:
    """The ASGI application.

    Args:
        settings: limits.
        upstream: what answers; started and stopped with the application.
        publisher: where calls are recorded.
        clock: time of the spans.
        stop: called (in a thread) after the last request: time to flush the publisher.
        gives_ids: answers carry their token ids also to agents that do not ask for them.
        releases: lead calls to models; started and stopped with the application.
    """
    clock = clock or SystemClock()
    redaction = Redaction(settings)
    recorder = CallRecorder(publisher, clock, codec_for(settings), redaction)
    rewards = RewardRecorder(publisher, clock, redaction)
    keys = AttemptKeys(settings)
    exchange = Exchange(settings, upstream, recorder, clock, gives_ids=gives_ids, releases=releases)
    access = proxy_access(settings)
    dialects: dict[str, Dialect] = {
        "/chat/completions": CHAT,
        "/completions": COMPLETIONS,
        "/embeddings": EMBEDDINGS,
        "/responses": ResponsesDialect(),  # remembers this application's conversations
        "/messages": ANTHROPIC_MESSAGES,
    }

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncGenerator[None]:
        await upstream.start()
        if releases is not None:
            releases.start()
        try:
            yield
        finally:
            if releases is not None:
                await asyncio.to_thread(releases.stop)
            await upstream.stop()
            await asyncio.to_thread(stop)

    def calls_in(dialect: Dialect) -> Handler:
        async def call(request: Request) -> Response:
            try:
                caller = caller_of(request.path_params, request.headers)
                incoming = Call(caller, dialect, run_seed=request.path_params.get("run_seed"))
            except ValueError as error:
                return response_of(error_reply(dialect, 400, str(error)))
            return await exchange.answer(request, incoming)

        return call

    async def count_tokens(request: Request) -> Response:
        try:
            body = json_object(await unpacked_body(request, settings.llm_request_bytes_max))
            reply = Reply(200, to_json({"input_tokens": await counted_tokens(body)}))
        except BodyTooLargeError as error:
            reply = error_reply(ANTHROPIC_MESSAGES, 413, str(error))
        except ValueError as error:
            status = error.status if isinstance(error, UnreadableBodyError) else 400
            reply = error_reply(ANTHROPIC_MESSAGES, status, str(error))
        return response_of(reply)

    async def reward(request: Request) -> Response:
        place = (request.path_params["rollout_id"], request.path_params["attempt_id"])
        try:
            await rewards.record(*place, json_object(await unpacked_body(request, REWARD_BYTES_MAX)))
        except BodyTooLargeError as error:
            return response_of(error_reply(CHAT, 413, str(error)))
        except ValueError as error:
            return response_of(error_reply(CHAT, 400, str(error)))
        except LightstreamError as error:
            return response_of(error_reply(CHAT, 503, f"the reward could not be recorded: {error}"))
        return response_of(Reply(200, to_json({"status": "ok"})))

    async def models(request: Request) -> Response:
        return response_of(await exchange.models(CHAT, request.path_params.get("model", "")))

    async def no_route(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 404
        message = f"{request.method} {request.url.path} is not answered here; these paths are: {', '.join(known)}"
        return response_of(error_reply(CHAT, status, message))

    async def health(_request: Request) -> Response:
        return Response(to_json({"status": "ok"}), media_type="application/json")

    routes = [Route("/healthz", health, methods=["GET"])]
    for prefix in PREFIXES:
        for path, dialect in dialects.items():
            routes.append(Route(prefix + path, _guarded(access, keys, dialect, calls_in(dialect)), methods=["POST"]))
        counting = _guarded(access, keys, ANTHROPIC_MESSAGES, count_tokens)
        routes.append(Route(f"{prefix}/messages/count_tokens", counting, methods=["POST"]))
        asking = _guarded(access, keys, CHAT, models)
        routes += [Route(prefix + path, asking, methods=["GET"]) for path in ("/models", "/models/{model:path}")]
    routes.append(Route(f"{ATTEMPT}/reward", _guarded(access, keys, CHAT, reward), methods=["POST"]))
    known = [f"POST /v1{path}" for path in dialects] + ["GET /v1/models"]
    handlers: dict[Any, Any] = {ClientGoneError: client_gone, 404: no_route, 405: no_route}
    door = Middleware(Door, access=access, refuse=_refused)
    return Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers, middleware=[door])


def _refused(status: int, message: str) -> Response:
    return response_of(error_reply(CHAT, status, message))


class AttemptKeys:
    """Checks keys that are good for one attempt alone, under the paths of that attempt."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._secret: bytes | None = None

    async def is_good(self, key: str, path: Mapping[str, str]) -> bool:
        """Whether it is the key of the attempt that the path names."""
        if self._secret is None:
            self._secret = await asyncio.to_thread(attempt_secret, self._settings)
        rollout_id, attempt_id = path.get("rollout_id"), path.get("attempt_id")
        return bool(rollout_id and attempt_id) and is_key_of(key, self._secret, str(rollout_id), str(attempt_id))


def _guarded(access: Access, keys: AttemptKeys, dialect: Dialect, handler: Handler) -> Handler:
    """The handler for clients with the token, or with the key of the attempt that they call for.

    Others get 401, which no client tries again; nothing is recorded. A key of another attempt is refused even where no
    token is required: whoever sends it mistakes the attempt. OpenAI's clients send ``authorization: Bearer …``,
    Anthropic's ``x-api-key: …`` or the former.
    """

    async def guarded(request: Request) -> Response:
        scopes = (INGEST, READ) if request.method in ("GET", "HEAD") else (INGEST,)
        sent = (bearer_token(request.headers), request.headers.get("x-api-key", "").strip())
        if attempt_keys := [key for key in sent if is_attempt_key(key)]:
            if await keys.is_good(attempt_keys[0], request.path_params):
                return await handler(request)
            return response_of(error_reply(dialect, 401, WRONG_KEY))
        status = access.refusal(*sent, scopes=scopes)
        if status is None:
            return await handler(request)
        message = "the proxy asks for a token: give the client LIGHTSTREAM_PROXY_TOKEN's value as its API key"
        if status == 403:
            message = f"this needs a token with the scope {' or '.join(scopes)}"
        return response_of(error_reply(dialect, status, message))

    return guarded
