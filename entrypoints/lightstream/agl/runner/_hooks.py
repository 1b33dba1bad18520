"""Hooks that are given the Runner which they were given to."""

from __future__ import annotations

from typing import Any

from lightstream.producers import Hook
from lightstream.producers.runner.hooks import call_hook

__all__ = ["OwnRunner"]


class OwnRunner(Hook):
    """Calls ``hook`` with ``runner`` in the place of the one that works within it."""

    def __init__(self, hook: Hook, runner: Any) -> None:
        self._hook = hook
        self._runner = runner

    async def on_rollout_start(self, **given: Any) -> None:
        await call_hook(self._hook.on_rollout_start, **given | {"runner": self._runner})

    async def on_trace_start(self, **given: Any) -> None:
        await call_hook(self._hook.on_trace_start, **given | {"runner": self._runner})

    async def on_trace_end(self, **given: Any) -> None:
        await call_hook(self._hook.on_trace_end, **given | {"runner": self._runner})

    async def on_rollout_end(self, **given: Any) -> None:
        await call_hook(self._hook.on_rollout_end, **given | {"runner": self._runner})
