"""A blocking call, awaited."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any

__all__ = ["call_in_thread"]


async def call_in_thread(call: Callable[[], Any], name: str) -> Any:
    """Make ``call`` in a daemon thread. Not in a pool: one that never returns would keep the loop from closing."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def deliver(result: Any, error: BaseException | None) -> None:
        if not future.done():
            future.set_result(result) if error is None else future.set_exception(error)

    def run() -> None:
        result: Any = None
        raised: BaseException | None = None
        try:
            result = context.run(call)
        except BaseException as error:  # noqa: BLE001  # raised where it is awaited
            raised = error
        if not loop.is_closed():
            loop.call_soon_threadsafe(deliver, result, raised)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await future
