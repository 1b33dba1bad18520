"""Answers that dispatch rollouts. What their client does not receive goes back into the queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from lightstream.runtime.http_server import CLIENT_GONE
from lightstream.schemas.interfaces import LightningStore

from ._answers import AnswerMemory
from ._errors import Answer, refusal
from ._giving_back import give_back, untouched
from ._hanging_up import WaitingClient

__all__ = ["HandingOut", "hung_up_answer"]


class HandingOut:
    """Belongs to one event loop."""

    def __init__(self, store: LightningStore, answers: AnswerMemory) -> None:
        self._store = store
        self._answers = answers

    async def once(
        self, client: WaitingClient, key: str | None, request: bytes, do: Callable[[], Coroutine[Any, Any, Answer]]
    ) -> Answer:
        """As :meth:`AnswerMemory.once`, but ``do`` is cancelled once every client that waits for it has hung up.

        What it brings then goes back into the queue, and a repeated request is done anew.

        Args:
            do: gives back by itself what it has taken by the time that it is cancelled.

        Raises:
            StoreError: as there.
        """
        if key is None:
            answer = await client.unless_gone(do())
            if answer is not None and client.is_gone:
                await give_back(self._store, answer.handed_out)
        else:
            answer = await client.unless_gone(self._answers.once(key, request, do))
            if client.is_gone:
                await give_back(self._store, (await self._forgotten(key)).handed_out)
        return answer or hung_up_answer()

    async def give_back(self, key: str) -> None:
        """As a client asks that did not wait for the answer to this request of its, or lost it."""
        answer = await self._forgotten(key, though_awaited=True)
        await give_back(self._store, await untouched(self._store, answer.handed_out))

    async def _forgotten(self, key: str, *, though_awaited: bool = False) -> Answer:
        """The answer under that key, which is forgotten; one under way is ended. Nothing, while others wait for it."""
        task = self._answers.forget(key, though_awaited=though_awaited)
        if task is None:
            return hung_up_answer()
        task.cancel()
        await asyncio.wait({task})
        return hung_up_answer() if task.cancelled() or task.exception() is not None else task.result()


def hung_up_answer() -> Answer:
    """What a client is told that is not there to hear it."""
    return refusal(CLIENT_GONE, "the client hung up")
