"""Many back ends behind names: the least busy one of a name is asked, and another one where that fails."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from pydantic_core import to_json

from lightstream.runtime.http.headers import POLICY_VERSION_HEADER, RESOURCES_ID_HEADER
from lightstream.runtime.settings import Settings

from .litellm_upstream import LiteLlmProviders
from .model_list import BackEnd, back_ends_of
from .openai_upstream import HttpUpstream
from .upstream import UpstreamAnswer, UpstreamError, listed, unknown_model

WORTH_ANOTHER_TRY = frozenset({408, 409, 429, 500, 502, 503, 504, 529})
"""Statuses after which a call is tried again, at another back end or later; LiteLLM retries the same."""

RETRY_DELAY_S = 0.25
RETRY_DELAY_S_MAX = 8.0
"""Pause before a back end that failed is asked again, doubled each time: a server restarts in seconds."""


class BalancingUpstream:
    """An upstream whose back ends can be replaced at any moment: calls under way end where they began.

    Args:
        settings: limits.
        model_list: as LiteLLM has it; entries with the same name share its calls.
        num_retries: how often a call is tried again before its failure is the agent's. A stream that began is not.

    Raises:
        SettingsError: the list is not a model list.
    """

    def __init__(self, settings: Settings, model_list: Sequence[Mapping[str, Any]], *, num_retries: int = 0) -> None:
        self._http = HttpUpstream(settings)
        self._providers = LiteLlmProviders(settings.llm_request_timeout_s)
        self._num_retries = num_retries
        self._back_ends: list[BackEnd] = []
        self._busy: dict[int, int] = {}
        self._turns = itertools.count()
        self.replace(model_list)

    def replace(self, model_list: Sequence[Mapping[str, Any]]) -> None:
        """Ask these back ends from the next call on. Thread-safe.

        Raises:
            SettingsError: the list is not a model list; nothing changed.
        """
        self._back_ends = back_ends_of(model_list)

    async def start(self) -> None:
        await self._http.start()

    async def stop(self) -> None:
        await self._http.stop()

    async def ask(self, endpoint: str, request: dict[str, Any], *, streams: bool) -> UpstreamAnswer:
        back_ends = self._back_ends
        name = request.get("model")
        candidates = [back_end for back_end in back_ends if back_end.name == name]
        if not candidates:
            return unknown_model(name, [back_end.name for back_end in back_ends])
        tried: list[BackEnd] = []
        while True:
            fresh = [back_end for back_end in candidates if back_end not in tried]
            if not fresh:
                await asyncio.sleep(min(RETRY_DELAY_S * 2 ** (len(tried) - 1), RETRY_DELAY_S_MAX))
            back_end = self._least_busy(fresh or candidates)
            tried.append(back_end)
            is_last_try = len(tried) > self._num_retries
            try:
                answer = await self._ask_one(back_end, endpoint, request, streams=streams)
            except UpstreamError:
                if is_last_try:
                    raise
                continue
            if is_last_try or answer.status not in WORTH_ANOTHER_TRY:
                return answer

    async def models(self, name: str = "") -> UpstreamAnswer:
        return listed([back_end.name for back_end in self._back_ends], "lightstream", name)

    def _least_busy(self, candidates: list[BackEnd]) -> BackEnd:
        first = next(self._turns) % len(candidates)  # of equally busy ones each has its turn
        return min(candidates[first:] + candidates[:first], key=lambda back_end: self._busy.get(id(back_end), 0))

    async def _ask_one(
        self, back_end: BackEnd, endpoint: str, request: dict[str, Any], *, streams: bool
    ) -> UpstreamAnswer:
        """One try; the back end counts as busy until its answer is over."""
        hold = _Hold(self._busy, back_end)
        try:
            answer = await self._sent(back_end, endpoint, request, streams=streams)
        except BaseException:
            hold.release()
            raise
        if answer.pieces is None:
            hold.release()
        else:
            answer.pieces = hold.until_end(answer.pieces)
            answer.close = hold.released_after(answer.close)
        known = {RESOURCES_ID_HEADER: back_end.resources_id}
        if back_end.policy_version is not None:
            known[POLICY_VERSION_HEADER] = str(back_end.policy_version)
        answer.defaults = back_end.parameters
        answer.headers = {key: value for key, value in known.items() if value} | dict(answer.headers)
        return answer

    async def _sent(
        self, back_end: BackEnd, endpoint: str, request: dict[str, Any], *, streams: bool
    ) -> UpstreamAnswer:
        fields = dict(back_end.parameters) | request | {"model": back_end.model}
        if back_end.is_direct:
            url = f"{back_end.api_base}/{endpoint}"
            return await self._http.send("POST", url, to_json(fields), api_key=back_end.api_key, streams=streams)
        return await self._providers.ask(
            endpoint, fields, streams=streams, api_base=back_end.api_base, api_key=back_end.api_key
        )


class _Hold:
    """Counts one call of a back end until it is released, once."""

    def __init__(self, busy: dict[int, int], back_end: BackEnd) -> None:
        self._busy = busy
        self._back_end = back_end  # held, so that no other gets its id
        self._is_held = True
        busy[id(back_end)] = busy.get(id(back_end), 0) + 1

    def release(self) -> None:
        if not self._is_held:
            return
        self._is_held = False
        key = id(self._back_end)
        self._busy[key] -= 1
        if not self._busy[key]:
            del self._busy[key]

    def released_after(self, close: Callable[[], None]) -> Callable[[], None]:
        def close_and_release() -> None:
            close()
            self.release()

        return close_and_release

    async def until_end(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        try:
            async for piece in pieces:
                yield piece
        finally:
            self.release()
