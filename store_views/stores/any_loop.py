"""A store for callers of any thread and any event loop."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from lightstream.runtime.loop_thread import LoopThread
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.records import ANY_RUN
from lightstream.schemas.types import AttemptedRollout, LightningStoreCapabilities, LogPositions

from .forwarding import forward_calls
from .store import Store

OWN = frozenset({"dequeue_many_rollouts", "see"})

DERIVED = frozenset({"add_otel_span", "add_span", "dequeue_rollout", "enqueue_rollout", "get_next_span_sequence_id"})
"""Methods that the interface defines by others: a subclass that overrides those changes these too."""


class AnyLoopStore(LightningStore):
    """Makes every call of a store in one event loop, which runs in a thread of its own.

    One that is forgotten without being closed ends its thread.

    Args:
        store: is used in that loop alone.
        loop: its loop.
    """

    def __init__(self, store: Store, loop: LoopThread) -> None:
        self.store = store
        self._loop = loop
        weakref.finalize(self, loop.abandon).atexit = False

    async def start(self) -> None:
        await self._loop.call(self.store.start)

    async def close(self) -> None:
        await asyncio.to_thread(self._loop.close, self.store.close)

    @property
    def capabilities(self) -> LightningStoreCapabilities:
        return self.store.capabilities

    def see(self, positions: LogPositions) -> None:
        """As the interface says; blocks."""
        self._loop.run(partial(self.store.see_in_loop, positions))

    async def dequeue_many_rollouts(
        self, *, limit: int = 1, worker_id: str | None = None, timeout_s: float = 0.0, run_id: str = ANY_RUN
    ) -> Sequence[AttemptedRollout]:
        dequeue = partial(
            self.store.dequeue_many_rollouts, limit=limit, worker_id=worker_id, timeout_s=timeout_s, run_id=run_id
        )
        return await self._loop.call(dequeue, unclaimed=self.store.requeue)

    async def call(self, call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Make a call of the store in its loop."""
        return await self._loop.call(call)


forward_calls(AnyLoopStore, without=OWN | DERIVED)
