"""Any provider that LiteLLM knows, by its model strings (``openai/…``, ``anthropic/…``, ``hosted_vllm/…``).

Token ids are captured where provider and LiteLLM pass them on: that is not the case in streams.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

from pydantic_core import to_json

from lightstream.runtime.http.errors import openai_error
from lightstream.runtime.settings import Settings

from .events import event_of
from .upstream import UpstreamAnswer, UpstreamError, listed


def imported_litellm() -> Any:
    """The module: no price list from the network, no telemetry, no advice on standard output."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    module: Any = litellm
    module.telemetry = False
    module.suppress_debug_info = True
    return module


TOKEN_ID_PROVIDERS = ("hosted_vllm/", "vllm/", "openai/", "litellm_proxy/")
"""Providers whose servers may know ``return_token_ids``; others would refuse the parameter or drop it."""

NOT_THE_AGENT_S = frozenset({"api_base", "api_key", "base_url", "custom_llm_provider", "mock_response"})
"""LiteLLM's arguments that are not request parameters: an agent could send our keys to a server of its own."""


class LiteLlmProviders:
    """Calls LiteLLM in place of a server.

    Args:
        timeout_s: how long a provider may be silent.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s

    async def start(self) -> None:
        """Import LiteLLM, which takes seconds; without this, the first request does."""
        await asyncio.to_thread(imported_litellm)

    async def ask(
        self, endpoint: str, request: dict[str, Any], *, streams: bool, api_base: str | None, api_key: str | None
    ) -> UpstreamAnswer:
        """One request, retried by nobody; ``request["model"]`` is LiteLLM's model string.

        Raises:
            UpstreamError: there is no answer.
        """
        litellm = await asyncio.to_thread(imported_litellm)
        arguments = {name: value for name, value in request.items() if name not in NOT_THE_AGENT_S}
        returns_token_ids = arguments.pop("return_token_ids", None)
        if returns_token_ids and str(arguments["model"]).startswith(TOKEN_ID_PROVIDERS):
            arguments["extra_body"] = {"return_token_ids": returns_token_ids}
        arguments |= {"api_base": api_base} if api_base else {}
        arguments |= {"api_key": api_key} if api_key else {}
        arguments |= {"timeout": self._timeout_s, "num_retries": 0, "max_retries": 0, "drop_params": True}
        import openai  # LiteLLM's errors derive from this package's

        calls = {"completions": litellm.atext_completion, "embeddings": litellm.aembedding}
        call = calls.get(endpoint, litellm.acompletion)
        try:
            answer = await call(**arguments)
        except openai.APIError as error:
            return self._refused(error)
        except (ValueError, TypeError, LookupError, AttributeError) as error:  # what it takes for granted is not there
            message = f"LiteLLM rejects the request: {type(error).__name__}: {error}"
            raise UpstreamError(message, status=400) from error
        if streams:
            return UpstreamAnswer(200, content_type="text/event-stream", pieces=self._pieces(answer))
        return UpstreamAnswer(200, body=to_json(answer.model_dump(exclude_none=True)))

    async def _pieces(self, chunks: AsyncIterator[Any]) -> AsyncIterator[bytes]:
        import openai

        try:
            async for chunk in chunks:
                yield event_of(to_json(chunk.model_dump(exclude_none=True)))
        except openai.APIError as error:
            raise UpstreamError(f"the provider's stream was interrupted: {error}", status=502) from error
        yield event_of(b"[DONE]")

    def _refused(self, error: Any) -> UpstreamAnswer:
        """A provider's refusal as an answer; no answer at all as an error."""
        import openai

        if isinstance(error, openai.APITimeoutError):
            limit = f"{self._timeout_s:g} s (LIGHTSTREAM_LLM_REQUEST_TIMEOUT_S)"
            raise UpstreamError(f"the provider sent no data for {limit}", status=504) from error
        if isinstance(error, openai.APIConnectionError):
            raise UpstreamError(f"the provider is not reachable: {error}", status=502) from error
        status = getattr(error, "status_code", None)
        if not isinstance(status, int) or status < 400:
            status = 502
        body = openai_error(str(error), status=status, kind=type(error).__name__)
        return UpstreamAnswer(status, body=to_json(body))


class LiteLlmUpstream:
    """The requested model, or ``settings.llm_model`` in its place, by whichever provider its name says.

    Keys come from the providers' own environment variables, or from ``settings.llm_upstream_api_key``;
    ``settings.llm_upstream_url`` is the API base where it is set.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._providers = LiteLlmProviders(settings.llm_request_timeout_s)

    async def start(self) -> None:
        await self._providers.start()

    async def stop(self) -> None:
        return

    async def ask(self, endpoint: str, request: dict[str, Any], *, streams: bool) -> UpstreamAnswer:
        key = self._settings.llm_upstream_api_key
        return await self._providers.ask(
            endpoint,
            request | {"model": request.get("model") or self._model_of(endpoint) or ""},
            streams=streams,
            api_base=self._settings.llm_upstream_url,
            api_key=None if key is None else key.get_secret_value(),
        )

    def _model_of(self, endpoint: str) -> str | None:
        return None if endpoint == "embeddings" else self._settings.llm_model

    async def models(self, name: str = "") -> UpstreamAnswer:
        return listed([self._settings.llm_model] if self._settings.llm_model else [], "litellm", name)
