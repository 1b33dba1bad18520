"""The one OpenAI-compatible server that the settings name, or the policy server on this machine."""

from __future__ import annotations

import time
from typing import Any

from pydantic_core import to_json

from lightstream.schemas.errors import ServiceUnavailableError
from lightstream.schemas.services import discover
from lightstream.schemas.settings import Settings

from .http_upstream import HttpUpstream
from .upstream import UpstreamAnswer, UpstreamError

__all__ = ["OpenAiUpstream"]

DISCOVERY_TTL_S = 1.0
"""How long the announced policy server is believed to be where it was: looking it up reads two files."""


class OpenAiUpstream:
    """Forwards to ``settings.llm_upstream_url``, else to the policy server that is announced on this machine."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._http = HttpUpstream(settings)
        key = settings.llm_upstream_api_key
        self._api_key = None if key is None else key.get_secret_value()
        self._announced = ("", 0.0)

    async def start(self) -> None:
        await self._http.start()

    async def stop(self) -> None:
        await self._http.stop()

    async def ask(self, endpoint: str, request: dict[str, Any], *, streams: bool) -> UpstreamAnswer:
        return await self._send("POST", endpoint, to_json(request), streams=streams)

    async def models(self) -> UpstreamAnswer:
        return await self._send("GET", "models", None, streams=False)

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
