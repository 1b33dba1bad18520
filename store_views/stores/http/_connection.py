"""Requests that outlive a restart of the server: asked again, under the same key, until it is back."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import threading
import uuid
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Literal, TypeVar
from urllib.parse import urlencode
from urllib.request import getproxies

import aiohttp
from yarl import URL

from lightstream.runtime.http.client import Retries
from lightstream.runtime.loop_thread import LoopThread
from lightstream.runtime.services import discover
from lightstream.runtime.settings import Settings
from lightstream.runtime.tls import certificate_problem, client_context
from lightstream.schemas.errors import (
    LightstreamError,
    NotFoundError,
    ServiceUnavailableError,
    SettingsError,
    StoreError,
)
from lightstream.schemas.types import LogPositions

from ._wire import ASKS_AGAIN, IDEMPOTENCY_KEY, POSITIONS, PREFIX, REQUEUE_PATH, WAIT_S_MAX, encode_request

T = TypeVar("T")

PATIENCE_S = 90.0
"""A server may be away for so long: a restart of under a minute, and the time until a connection is known dead."""

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = WAIT_S_MAX + 5.0
"""For one request. A write that takes longer is asked for again, and joined by its key."""

CONNECTIONS_MAX = 1024
"""As many calls of one client as may be under way; more wait for their turn."""

KEPT_S = 60.0
"""Idle connections are kept for so long: less than the server keeps them (75 s), so that it closes none in use."""


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
class _Received:
    """An answer as it came."""

    status: int
    content: bytes
    headers: dict[str, str]


@dataclass(frozen=True, slots=True)
class Reply:
    """The server's answer to a request that went well."""

    value: Any
    headers: dict[str, str]


class Connection:
    """To one store server. Usable from any thread and loop, after a fork, and pickled.

    Args:
        address: URL of the server; ``None`` looks for the one that the settings name or that is announced here,
            again for each try, since a restarted server may have another port.
        token: sent with each request.
        patience_s: how long one request is asked again while nobody answers.
        prefix: of every path.

    Raises:
        SettingsError: the address is not a URL.
    """

    def __init__(
        self, address: str | None, settings: Settings, token: str | None, patience_s: float, *, prefix: str = PREFIX
    ) -> None:
        if address is not None and not address.startswith(("http://", "https://")):
            raise SettingsError(f"the store server's address is {address!r}; it must begin with http:// or https://.")
        self._address = address
        self._settings = settings
        self._token = token
        self._patience_s = patience_s
        self._prefix = prefix
        self._positions_lock = threading.Lock()
        self._positions = LogPositions()
        self._thread = LoopThread("lightstream-store-client", "the store client")
        self._session: tuple[int, aiohttp.ClientSession] | None = None
        self._found: str | None = None

    def __getstate__(self) -> tuple[str | None, Settings, str | None, float, str, LogPositions]:
        return self._address, self._settings, self._token, self._patience_s, self._prefix, self.positions()

    def __setstate__(self, state: tuple[str | None, Settings, str | None, float, str, LogPositions]) -> None:
        *arguments, prefix, positions = state
        self.__init__(*arguments, prefix=prefix)  # type: ignore[misc]  # it holds nothing else worth keeping
        self.see(positions)

    @property
    def address(self) -> str:
        """URL of the server, without a path.

        Raises:
            ServiceUnavailableError: none is named and none is announced.
        """
        address = self._address or self._settings.store_url or self._found or discover(self._settings, "store").address
        self._found = address  # until it does not answer
        return address.rstrip("/")

    async def get(self, path: str, query: dict[str, Any] | None = None, *, dispatches: bool = False) -> Reply:
        """A question; arguments and errors are as in :meth:`post`."""
        key = uuid.uuid4().hex if dispatches else None
        return await self._reply(lambda: self._ask("GET", path, query, None, key), requeues=key)

    async def post(self, path: str, body: dict[str, Any], *, writes: bool = True, dispatches: bool = False) -> Reply:
        """A call; one that ``writes`` is done once, however often it has to be sent.

        Args:
            dispatches: the answer has rollouts to run: whoever is cancelled before it comes has them requeued.

        Raises:
            StoreError: the call cannot be done; nothing changed.
            ServiceUnavailableError: nobody answers, or what the store needs does not.
            SettingsError: the token is missing or wrong, or the server's certificate is not to be trusted.
        """
        content = encode_request(body)
        key = uuid.uuid4().hex if writes else None
        return await self._reply(lambda: self._ask("POST", path, None, content, key), key if dispatches else None)

    def positions(self) -> LogPositions:
        """Return how far in the log the answers reached."""
        with self._positions_lock:
            return self._positions

    def see(self, positions: LogPositions) -> None:
        """From now on, answers reflect these positions too."""
        with self._positions_lock:
            self._positions = self._positions.merged(positions)

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of ``work``, which uses this connection; blocks. Not for use in an event loop."""
        return self._thread.run(work)

    async def close(self) -> None:
        """Give up open calls and close all connections."""
        await asyncio.to_thread(self.close_and_wait)

    def close_and_wait(self) -> None:
        """As :meth:`close`; blocks."""
        self._thread.close(self._close_session)

    async def _reply(self, ask: Callable[[], Coroutine[Any, Any, Reply]], requeues: str | None) -> Reply:
        """The reply, from the thread; ``requeues`` is the key of a request that dispatches rollouts."""
        try:
            return await self._thread.call(ask)
        except asyncio.CancelledError:
            if requeues is not None:
                with contextlib.suppress(ServiceUnavailableError):  # it was closed
                    self._thread.begin(lambda: self._requeue(requeues))
            raise

    async def _requeue(self, key: str) -> None:
        """Say that nobody has what was dispatched under this key. Said once: a server that is away has ended it."""
        headers, content = self._headers(None, has_body=True), encode_request({"key": key})
        with contextlib.suppress(aiohttp.ClientError, TimeoutError, LightstreamError):
            url = f"{self.address}{PREFIX}{REQUEUE_PATH}"
            async with self._session_here().post(URL(url, encoded=True), data=content, headers=headers) as response:
                await response.read()

    def _headers(self, key: str | None, *, has_body: bool) -> dict[str, str]:
        headers = {ASKS_AGAIN: "1"}
        if has_body:
            headers["content-type"] = "application/json"
        if key is not None:
            headers[IDEMPOTENCY_KEY] = key
        if self._token is not None:
            headers["authorization"] = f"Bearer {self._token}"
        if positions := self.positions().to_text():
            headers[POSITIONS] = positions
        return headers

    async def _ask(
        self,
        method: Literal["GET", "POST"],
        path: str,
        query: dict[str, Any] | None,
        content: bytes | None,
        key: str | None,
    ) -> Reply:
        headers = self._headers(key, has_body=content is not None)
        target = f"{self._prefix}{path}" + (f"?{urlencode(query)}" if query else "")
        retries, address = Retries(self._patience_s), ""
        while True:
            try:
                address = self.address
                url = address + target
                # Ids are escaped already, and some on purpose although they need not be.
                pending = self._session_here().request(method, URL(url, encoded=True), data=content, headers=headers)
                async with pending as response:
                    answer = _Received(response.status, await response.read(), _lower(response.headers))
            except (aiohttp.InvalidURL, ValueError) as error:
                if (problem := certificate_problem(error, address)) is not None:
                    raise problem from error  # aiohttp's errors about certificates are ValueErrors
                raise SettingsError(f"the store server's address or token cannot be sent: {error}") from error
            except (aiohttp.ClientError, TimeoutError) as error:
                if (problem := certificate_problem(error, address)) is not None:
                    raise problem from error
                self._found = None
                await _pause(retries, f"the store server does not answer: {error!r}.", error)
                continue
            except ServiceUnavailableError as error:
                await _pause(retries, error.message, error)
                continue
            if positions_text := answer.headers.get(POSITIONS):
                self.see(LogPositions.from_text(positions_text))
            if answer.status < HTTPStatus.BAD_REQUEST:
                return Reply(_parsed(url, answer), answer.headers)
            if not _worth_a_retry(answer):
                raise _raised_by(answer)
            await _pause(retries, f"the store server answers {answer.status}: {_raised_by(answer)}", None)

    def _session_here(self) -> aiohttp.ClientSession:
        """Open connections of this process; runs in the thread."""
        if self._session is None or self._session[0] != os.getpid():
            connector = aiohttp.TCPConnector(
                limit=CONNECTIONS_MAX, keepalive_timeout=KEPT_S, ssl=client_context(self._settings)
            )
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=ANSWER_TIMEOUT_S)
            behind_proxy = bool(getproxies())  # asked once: aiohttp looks for them in a thread, at every request
            session = aiohttp.ClientSession(connector=connector, timeout=timeout, trust_env=behind_proxy)
            self._session = (os.getpid(), session)
        return self._session[1]

    async def _close_session(self) -> None:
        under_way = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        if self._session is not None and self._session[0] == os.getpid():
            await self._session[1].close()


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _parsed(url: str, answer: _Received) -> Any:
    try:
        return json.loads(answer.content)
    except ValueError as error:
        raise ServiceUnavailableError(
            f"{url} answers {answer.status} without valid JSON: {answer.content[:100]!r}.",
            next_step="Is it a store server? Its address has no path.",
        ) from error


def _worth_a_retry(answer: _Received) -> bool:
    """Whether the same request may fare better soon: it did not reach the store, or the store is being restarted."""
    if answer.status == HTTPStatus.SERVICE_UNAVAILABLE:
        return "retry-after" in answer.headers or not _error_body(answer.content).get("error_type")
    return answer.status in RETRIED


def _raised_by(answer: _Received) -> Exception:
    """The error that an answer stands for."""
    body = _error_body(answer.content)
    message = _text_of(body.get("detail"), answer)
    next_step = str(body.get("next_step") or "")
    if answer.status == HTTPStatus.UNAUTHORIZED:
        return SettingsError(message, next_step=next_step)
    if answer.status == HTTPStatus.NOT_IMPLEMENTED:
        return NotImplementedError(message)
    if answer.status == HTTPStatus.NOT_FOUND and body.get("error_type") == NotFoundError.__name__:
        return NotFoundError(message, next_step=next_step)
    if HTTPStatus.BAD_REQUEST <= answer.status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return StoreError(message, next_step=next_step)
    return ServiceUnavailableError(message, next_step=next_step)


def _error_body(content: bytes) -> dict[str, Any]:
    try:
        body = json.loads(content)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def _text_of(detail: Any, answer: _Received) -> str:
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


async def _pause(retries: Retries, problem: str, cause: Exception | None) -> None:
    """Pause after a failed try.

    Raises:
        ServiceUnavailableError: the patience is over.
    """
    pause_s = retries.pause_s()
    if pause_s is None:
        raise ServiceUnavailableError(
            f"{problem} It was retried for {retries.spent_s:.0f} s.",
            next_step="Is it running? `lightstream store` starts it; LIGHTSTREAM_STORE_URL names one elsewhere.",
        ) from cause
    await asyncio.sleep(pause_s)
