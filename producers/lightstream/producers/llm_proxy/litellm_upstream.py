"""Any provider that LiteLLM knows, by its model strings (``openai/…``, ``anthropic/…``, ``hosted_vllm/…``).

Token ids are captured where provider and LiteLLM pass them on: that is not the case in streams.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

from pydantic_core import to_json

from lightstream.schemas.settings import Settings

from .events import event_of
from .upstream import UpstreamAnswer, UpstreamError

__all__ = ["LiteLlmUpstream"]

TOKEN_ID_PROVIDERS = ("hosted_vllm/", "vllm/", "openai/", "litellm_proxy/")
"""Whose servers may know ``return_token_ids``; others would refuse the parameter or drop it."""


class LiteLlmUpstream:
    """Calls ``litellm.acompletion`` with the requested model, or with ``settings.llm_model`` in its place.

    Keys come from the providers' own environment variables, or from ``settings.llm_upstream_api_key``;
    ``settings.llm_upstream_url`` is the API base where it is set.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._litellm: Any = None

    async def start(self) -> None:
        self._litellm = await asyncio.to_thread(_imported)

    async def stop(self) -> None:
        return

    async def chat(self, request: dict[str, Any], *, streams: bool) -> UpstreamAnswer:
        arguments = dict(request)
        arguments["model"] = self._settings.llm_model or request.get("model") or ""
        returns_token_ids = arguments.pop("return_token_ids", None)
        if returns_token_ids and arguments["model"].startswith(TOKEN_ID_PROVIDERS):
            arguments["extra_body"] = {"return_token_ids": returns_token_ids}
        if self._settings.llm_upstream_url:
            arguments["api_base"] = self._settings.llm_upstream_url
        if self._settings.llm_upstream_api_key is not None:
            arguments["api_key"] = self._settings.llm_upstream_api_key.get_secret_value()
        import openai  # LiteLLM's errors derive from this package's

        try:
            answer = await self._litellm.acompletion(
                **arguments, timeout=self._settings.llm_request_timeout_s, num_retries=0, drop_params=True
            )
        except openai.APIError as error:
            return self._refused(error)
        if streams:
            return UpstreamAnswer(200, content_type="text/event-stream", pieces=self._pieces(answer))
        return UpstreamAnswer(200, body=to_json(answer.model_dump(exclude_none=True)))

    async def models(self) -> UpstreamAnswer:
        names = [self._settings.llm_model] if self._settings.llm_model else []
        entries = [{"id": name, "object": "model", "created": 0, "owned_by": "litellm"} for name in names]
        return UpstreamAnswer(200, body=to_json({"object": "list", "data": entries}))

    async def _pieces(self, chunks: AsyncIterator[Any]) -> AsyncIterator[bytes]:
        import openai

        try:
            async for chunk in chunks:
                yield event_of(to_json(chunk.model_dump(exclude_none=True)))
        except openai.APIError as error:
            raise UpstreamError(f"the stream broke off: {error}", status=502) from error
        yield event_of(b"[DONE]")

    def _refused(self, error: Any) -> UpstreamAnswer:
        """A provider's refusal as an answer; no answer at all as an error."""
        import openai

        if isinstance(error, openai.APITimeoutError):
            limit_s = self._settings.llm_request_timeout_s
            raise UpstreamError(f"the provider said nothing for {limit_s:g} s", status=504) from error
        if isinstance(error, openai.APIConnectionError):
            raise UpstreamError(f"the provider is not reachable: {error}", status=502) from error
        status = getattr(error, "status_code", None)
        body = {"error": {"message": str(error), "type": type(error).__name__, "param": None, "code": None}}
        return UpstreamAnswer(status if isinstance(status, int) and status >= 400 else 502, body=to_json(body))


def _imported() -> Any:
    """LiteLLM, without its calls home: no price list from the network, no telemetry."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    module: Any = litellm
    module.telemetry = False
    module.suppress_debug_info = True
    return module
