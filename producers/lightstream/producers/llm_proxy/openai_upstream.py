"""An OpenAI-compatible server, reached over HTTP; its bytes are passed on as they are."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
from pydantic_core import to_json

from lightstream.schemas.errors import ServiceUnavailableError
from lightstream.schemas.services import discover
from lightstream.schemas.settings import Settings

from .upstream import UpstreamAnswer, UpstreamError

__all__ = ["OpenAiUpstream"]

CONNECT_TIMEOUT_S = 10.0
"""A server that does not even accept connections for this long is down."""

KEEP_ALIVE_S = 15.0
"""Shorter than any server's, so that we never write into a connection that the server is closing."""

DISCOVERY_TTL_S = 1.0
"""How long the announced policy server is believed to be where it was: looking it up reads two files."""


class OpenAiUpstream:
    """Forwards to ``settings.llm_upstream_url``, else to the policy server that is announced on this machine."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._session: aiohttp.ClientSession | None = None
        self._announced = ("", 0.0)

    async def start(self) -> None:
        headers = {"content-type": "application/json"}
        if self._settings.llm_upstream_api_key is not None:
            headers["authorization"] = f"Bearer {self._settings.llm_upstream_api_key.get_secret_value()}"
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S),
            headers=headers,
            skip_auto_headers=("user-agent",),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=True,
        )

    async def stop(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def chat(self, request: dict[str, Any], *, streams: bool) -> UpstreamAnswer:
        return await self._send("POST", "/chat/completions", to_json(request), streams=streams)

    async def models(self) -> UpstreamAnswer:
        return await self._send("GET", "/models", None, streams=False)

    async def _send(self, method: str, path: str, data: bytes | None, *, streams: bool) -> UpstreamAnswer:
        url = self._base_url() + path
        assert self._session is not None, "start() comes first"  # noqa: S101  # a mistake in our own code, no input
        limit_s = self._settings.llm_request_timeout_s
        # A stream may take as long as it likes, but may not fall silent.
        timeout = aiohttp.ClientTimeout(
            total=None if streams else limit_s, sock_connect=CONNECT_TIMEOUT_S, sock_read=limit_s
        )
        try:
            response = await self._session.request(method, url, data=data, timeout=timeout)
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
                    answer.body = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._no_answer(error, url) from error
        return answer

    async def _pieces(self, response: aiohttp.ClientResponse, url: str) -> AsyncIterator[bytes]:
        try:
            async with response:
                async for piece in response.content.iter_any():
                    yield piece
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._no_answer(error, url) from error

    def _no_answer(self, error: BaseException, url: str) -> UpstreamError:
        self._announced = ("", 0.0)
        if isinstance(error, TimeoutError):
            limit_s = self._settings.llm_request_timeout_s
            return UpstreamError(f"the LLM server at {url} said nothing for {limit_s:g} s", status=504)
        return UpstreamError(f"the LLM server at {url} gave no answer: {type(error).__name__}: {error}", status=502)

    def _base_url(self) -> str:
        if self._settings.llm_upstream_url:
            return self._settings.llm_upstream_url.rstrip("/")
        url, looked_up = self._announced
        if not url or time.monotonic() - looked_up > DISCOVERY_TTL_S:
            try:
                url = discover(self._settings, "policy").address + "/v1"
            except ServiceUnavailableError as error:
                message = f"no LLM server: LIGHTSTREAM_LLM_UPSTREAM_URL is not set, and {error}"
                raise UpstreamError(message, status=503) from error
            self._announced = (url, time.monotonic())
        return url
