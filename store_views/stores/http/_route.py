"""Takes a request to its endpoint, and makes an answer of the endpoint's result, for every route of the store."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

from fastapi import Depends
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response

from lightstream.runtime.http.server import read_body, unless_disconnected
from lightstream.schemas.errors import LightstreamError, StoreError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import AttemptedRollout, LogPositions

from ..identity import repeatable
from ._answers import Answer, AnswerMemory, attempts_of, error_answer, rejected_answer
from ._dispatch import requeue
from ._wire import IDEMPOTENCY_KEY, POSITIONS, segment_text

Form = TypeVar("Form", bound=BaseModel)
Endpoint: TypeAlias = "Callable[..., Awaitable[Any]]"


class _Segment(Convertor[str]):
    """An id in a percent-encoded path, which may have any character and may be empty."""

    regex = "[^/]*"

    def convert(self, value: str) -> str:
        try:
            return segment_text(value)
        except UnicodeDecodeError as error:
            raise StoreError(f"the path has an id that is not UTF-8: {value!r}") from error

    def to_string(self, value: str) -> str:
        raise NotImplementedError("the server makes no URLs")


register_url_convertor("segment", _Segment())


@dataclass(slots=True)
class Serving:
    """Holds the shared parts of one application's routes. It belongs to the event loop that serves it.

    Attributes:
        body_bytes_max: the largest body that is read.
        takes_traces: whether this server takes OTLP traces itself.
        stopping: set when the server begins to stop.
    """

    store: LightningStore
    body_bytes_max: int
    takes_traces: bool
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    answers: AnswerMemory = field(default_factory=AnswerMemory)


async def _serving(request: Request) -> Serving:
    serving: Serving = request.app.state.serving
    return serving


async def _store(request: Request) -> LightningStore:
    store: LightningStore = request.app.state.serving.store
    return store


Served = Annotated[Serving, Depends(_serving)]
Store = Annotated[LightningStore, Depends(_store)]


class OptionalBody(BaseModel):
    """The form of a body that may be left out: an empty one, and ``null``, count as ``{}``."""


if TYPE_CHECKING:
    Parsed: TypeAlias = Annotated[Form, "parsed"]
else:

    class Parsed:
        """``Parsed[Form]``: the query string of a GET, or the body, as an endpoint's argument of that form."""

        def __class_getitem__(cls, form: type[BaseModel]) -> Any:
            async def parsed(request: Request) -> BaseModel:
                is_query = request.method == "GET"
                try:
                    return _query(form, request) if is_query else _body(form, request.state.body)
                except ValidationError as error:
                    place = "query" if is_query else "body"
                    found = error.errors(include_url=False, include_context=False)
                    raise RequestValidationError([{**item, "loc": [place, *item["loc"]]} for item in found]) from error

            return Annotated[form, Depends(parsed)]


def _query(form: type[BaseModel], request: Request) -> BaseModel:
    """Parse a query string. A name may come several times where a list is asked for."""
    values: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        named = form.model_fields.get(name)
        if named is not None and "list" in str(named.annotation):
            values.setdefault(name, []).append(value)
        else:
            values[name] = value
    return form.model_validate(values)


def _body(form: type[BaseModel], body: bytes) -> BaseModel:
    if issubclass(form, OptionalBody) and body.strip() in (b"", b"null"):
        body = b"{}"
    if not body:
        missing = {"loc": ["body"], "msg": "Field required: the request has no body", "type": "missing"}
        raise RequestValidationError([missing])
    return form.model_validate_json(body)


@dataclass(frozen=True, slots=True)
class Dispatched:
    """The result of an endpoint that tells its client to run these rollouts of the store."""

    store: LightningStore
    value: Any
    rollouts: Sequence[AttemptedRollout]


class StoreRoute(APIRoute):
    """Reads a request's body, calls the endpoint, and answers with its result or its error."""

    def __init__(self, path: str, endpoint: Endpoint, **options: Any) -> None:
        options |= {"response_model": None}  # the endpoint's answer is made here, not by FastAPI
        super().__init__(path, _answering(endpoint, options.get("status_code") or 200), **options)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        parse_and_call: Any = super().get_route_handler()

        async def handle(request: Request) -> Answer:
            serving: Serving = request.app.state.serving
            await _see(serving.store, request)
            request.state.body = await read_body(request, serving.body_bytes_max)
            try:
                answer = await self.answer(request, serving, partial(parse_and_call, request))
            except RequestValidationError as error:
                answer = rejected_answer(error)
            except LightstreamError as error:
                answer = error_answer(error)
            if text := serving.store.positions().to_text():
                answer.headers[POSITIONS] = text
            return answer

        return handle

    async def answer(self, request: Request, serving: Serving, do: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
        """Return the answer of ``do``, which calls the endpoint."""
        return await do()


class WaitRoute(StoreRoute):
    """A route that may take long, and is ended when its client disconnects."""

    async def answer(self, request: Request, serving: Serving, do: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
        return await unless_disconnected(request, do())


class WriteRoute(StoreRoute):
    """A route that writes: a repeated request with the same idempotency key gets the first answer."""

    async def answer(self, request: Request, serving: Serving, do: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
        key = request.headers.get(IDEMPOTENCY_KEY)
        if key is None:
            return await do()
        digest = _digest(request)

        async def write() -> Answer:
            # Another server may have done it, and been killed before it answered: the same ids make it the same write.
            with repeatable(f"{key} {digest.hex()}"):
                return await do()

        return await serving.answers.once(key, digest, write)


class DispatchRoute(StoreRoute):
    """A route whose answer dispatches rollouts: a repeated request with the same key gets the first answer.

    It is ended once every client that waits for it has disconnected. What it brings then is requeued, and a repeated
    request is done anew.
    """

    async def answer(self, request: Request, serving: Serving, do: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
        key = request.headers.get(IDEMPOTENCY_KEY)
        answer: Answer | None = None
        try:
            answer = await unless_disconnected(
                request, do() if key is None else serving.answers.once(key, _digest(request), do)
            )
            return answer
        finally:
            if await request.is_disconnected():
                lost = answer if key is None else await serving.answers.forget(key)
                await requeue(serving.store, lost.dispatched if lost else ())


def _answering(endpoint: Endpoint, status: int) -> Endpoint:
    """Make the result or the error of a store an answer."""

    @wraps(endpoint)
    async def answer(**arguments: Any) -> Answer:
        try:
            result = await endpoint(**arguments)
        except (LightstreamError, ValueError, NotImplementedError) as error:
            return error_answer(error)
        if isinstance(result, Answer):
            return result
        if not isinstance(result, Dispatched):
            return Answer(result, status)
        try:
            return Answer(result.value, status, dispatched=result.rollouts)
        except Exception:  # whatever it is, nobody will be told of what was dispatched
            await requeue(result.store, attempts_of(result.rollouts))
            raise

    answer.__signature__ = inspect.signature(endpoint, eval_str=True)  # type: ignore[attr-defined]  # FastAPI reads it
    return answer


async def _see(store: LightningStore, request: Request) -> None:
    """Have the answer reflect what the client has seen, at whichever server.

    Raises:
        StoreError: there is no such place in the log.
    """
    if text := request.headers.get(POSITIONS):
        positions = LogPositions.from_text(text)
        if not store.positions().covers(positions):
            await asyncio.to_thread(store.see, positions)  # it may ask Kafka how far the log goes


def _digest(request: Request) -> bytes:
    path: str = request.scope["path"]
    body: bytes = request.state.body
    return hashlib.sha256(path.encode("latin-1") + b"\0" + body).digest()
