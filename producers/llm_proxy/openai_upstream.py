"""OpenAI-compatible servers over HTTP; their bytes are passed on as they are."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import aiohttp
from pydantic_core import to_json

from lightstream.runtime.http.own_tokens import token_of
from lightstream.runtime.services import discover
from lightstream.runtime.settings import Settings
from lightstream.runtime.tls import certificate_problem, client_context
from lightstream.schemas.errors import ServiceUnavailableError

from .upstream import UpstreamAnswer, UpstreamError

CONNECT_TIMEOUT_S = 10.0
"""A server that does not even accept connections for this long is down."""

KEEP_ALIVE_S = 15.0
"""Shorter than any server's, so that we never write into a connection that the server is closing."""


class HttpUpstream:
    """Connections to any number of servers, kept open between requests.

    Args:
        settings: how long a server may be silent, and how large an answer may be.
    """

    def __init__(self, settings: Settings) -> None:
        self._timeout_s = settings.llm_request_timeout_s
        self._bytes_max = settings.llm_response_bytes_max
        self._certificates = client_context(settings)
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Get ready; called once, in the event loop."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S, ssl=self._certificates),
            headers={"content-type": "application/json"},
            skip_auto_headers=("user-agent",),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=True,
        )

    async def stop(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def send(
        self, method: str, url: str, data: bytes | None, *, api_key: str | None, streams: bool
    ) -> UpstreamAnswer:
        """One request.

        Raises:
            UpstreamError: no answer, or one over the limit.
        """
        assert self._session is not None, "call start() first"  # noqa: S101  # a mistake in our own code, no input
        headers = {"authorization": f"Bearer {api_key}"} if api_key else None
        # A stream may take longer than a whole answer, but may not fall silent.
        timeout = aiohttp.ClientTimeout(
            total=None if streams else self._timeout_s, sock_connect=CONNECT_TIMEOUT_S, sock_read=self._timeout_s
        )
        try:
            response = await self._session.request(method, url, data=data, headers=headers, timeout=timeout)
            answer = UpstreamAnswer(
                response.status,
                {name.lower(): value for name, value in response.headers.items()},
                response.content_type,
            )
            if streams and response.status == 200 and response.content_type == "text/event-stream":
                answer.pieces = self._pieces(response, url)
                answer.close = response.close
            else:
                async with response:
                    answer.body = await self._whole(response, url)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._no_answer(error, url) from error
        return answer

    async def _whole(self, response: aiohttp.ClientResponse, url: str) -> bytes:
        pieces: list[bytes] = []
        size_bytes = 0
        async for piece in response.content.iter_any():
            size_bytes += len(piece)
            if size_bytes > self._bytes_max:
                response.close()
                limit = f"{self._bytes_max:,} bytes; raise LIGHTSTREAM_LLM_RESPONSE_BYTES_MAX to accept it"
                raise UpstreamError(f"the response of the LLM server at {url} exceeds {limit}", status=502)
            pieces.append(piece)
        return b"".join(pieces)

    async def _pieces(self, response: aiohttp.ClientResponse, url: str) -> AsyncIterator[bytes]:
        try:
            async with response:
                async for piece in response.content.iter_any():
                    yield piece
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._no_answer(error, url) from error

    def _no_answer(self, error: BaseException, url: str) -> UpstreamError:
        if isinstance(error, TimeoutError):
            limit = f"{self._timeout_s:g} s (LIGHTSTREAM_LLM_REQUEST_TIMEOUT_S)"
            return UpstreamError(f"the LLM server at {url} sent no data for {limit}", status=504)
        if (problem := certificate_problem(error, url)) is not None:
            return UpstreamError(str(problem), status=502)
        return UpstreamError(
            f"the request to the LLM server at {url} failed: {type(error).__name__}: {error}", status=502
        )


DISCOVERY_TTL_S = 1.0
"""Age up to which the announced address of the policy server is used again: looking it up reads two files."""


class OpenAiUpstream:
    """Forwards to ``settings.llm_upstream_url``, else to the policy server that is announced on this machine."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._http = HttpUpstream(settings)
        key = settings.llm_upstream_api_key
        if settings.llm_upstream_url:
            self._api_key = None if key is None else key.get_secret_value()
        else:
            self._api_key = token_of(settings, "policy_token")
        self._announced = ("", 0.0)

    async def start(self) -> None:
        await self._http.start()

    async def stop(self) -> None:
        await self._http.stop()

    async def ask(self, endpoint: str, request: dict[str, Any], *, streams: bool) -> UpstreamAnswer:
        return await self._send("POST", endpoint, to_json(request), streams=streams)

    async def models(self, name: str = "") -> UpstreamAnswer:
        path = f"models/{quote(name)}" if name else "models"
        return await self._send("GET", path, None, streams=False)

    async def _send(self, method: str, endpoint: str, data: bytes | None, *, streams: bool) -> UpstreamAnswer:
        url = f"{self._base_url()}/{endpoint}"
        try:
            return await self._http.send(method, url, data, api_key=self._api_key, streams=streams)
        except UpstreamError:
            self._announced = ("", 0.0)
            raise

    def _base_url(self) -> str:
        if self._settings.llm_upstream_url:
            return self._settings.llm_upstream_url.rstrip("/")
        url, looked_up = self._announced
        if not url or time.monotonic() - looked_up > DISCOVERY_TTL_S:
            try:
                url = discover(self._settings, "policy").address + "/v1"
            except ServiceUnavailableError as error:
                message = (
                    f"no LLM server: LIGHTSTREAM_LLM_UPSTREAM_URL is not set, and {error.message} "
                    "Start it with `lightstream up --policy`, or name another server with that variable."
                )
                raise UpstreamError(message, status=503) from error
            self._announced = (url, time.monotonic())
        return url
