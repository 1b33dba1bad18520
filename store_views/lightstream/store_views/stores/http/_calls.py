"""What the store does for each route: from the parsed request to the method's result."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from lightstream.schemas.errors import ServiceUnavailableError, StoreError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import UNSET, Rollout

from ._wire import TRACES_PATH, WAIT_S_MAX

__all__ = ["Call", "Handler", "StoppingError", "Unfinished"]

DEQUEUE_SLICE_S_MAX = 4.0
"""A server that stops waits 10 s for answers under way, and a dequeue cannot be interrupted: what it took would be
handed to nobody until the lease is over."""

CUT_SLACK_S = 0.1
"""A wait that returns this much before the end of its slice may have been ended by it: clocks differ."""


class StoppingError(ServiceUnavailableError):
    """The server stops; whoever asks again finds the next one."""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A result that came because the request's time was over, not because the wait was."""

    value: Any


@dataclass(frozen=True, slots=True)
class Call:
    """One request.

    Attributes:
        ids: the path's ids by name.
        asked: the parsed body or query string.
        stopping: set when the server begins to stop.
        is_gone: whether the client has hung up.
        takes_traces: whether this server takes OTLP traces itself.
    """

    store: LightningStore
    ids: Mapping[str, str]
    asked: Any
    stopping: asyncio.Event
    is_gone: Callable[[], Awaitable[bool]]
    takes_traces: bool = False

    def given(self, name: str) -> Any:
        """A field of the body, ``UNSET`` where it was left out."""
        return getattr(self.asked, name) if name in self.asked.model_fields_set else UNSET


Handler: TypeAlias = Callable[[Call], Awaitable[Any]]


async def health(call: Call) -> Any:
    return {"status": "ok"}


async def statistics(call: Call) -> Any:
    return await call.store.statistics()


async def capabilities(call: Call) -> Any:
    return call.store.capabilities | ({"otlp_traces": True} if call.takes_traces else {})


async def otlp_traces_endpoint(call: Call) -> Any:
    """A path of this server, else the gateway's URL; ``null`` where none runs."""
    if call.takes_traces:
        return TRACES_PATH
    return call.store.otlp_traces_endpoint() if call.store.capabilities.get("otlp_traces") else None


# --- rollouts


async def enqueue_rollouts(call: Call) -> Any:
    return await call.store.enqueue_many_rollouts(call.asked.rollouts)


async def dequeue_rollouts(call: Call) -> Any:
    asked = call.asked
    if asked.limit <= 0:
        return []
    until = time.monotonic() + min(asked.timeout_s, WAIT_S_MAX)
    while True:
        left = until - time.monotonic()
        slice_s = max(0.0, min(left, DEQUEUE_SLICE_S_MAX))
        taken = await call.store.dequeue_many_rollouts(
            limit=asked.limit, worker_id=asked.worker_id, **_asked_for(timeout_s=slice_s or None)
        )
        if taken or left <= DEQUEUE_SLICE_S_MAX or call.stopping.is_set() or await call.is_gone():
            return taken


async def start_rollout(call: Call) -> Any:
    asked = call.asked
    return await call.store.start_rollout(
        asked.input,
        asked.mode,
        asked.resources_id,
        asked.config,
        asked.metadata,
        asked.worker_id,
        **_asked_for(
            rollout_id=asked.rollout_id, run_id=asked.run_id, group_id=asked.group_id, group_size=asked.group_size
        ),
    )


async def query_rollouts(call: Call) -> Any:
    return await call.store.query_rollouts(**_page(call))


async def get_rollout(call: Call) -> Any:
    return await call.store.get_rollout_by_id(call.ids["rollout_id"])


async def update_rollout(call: Call) -> Any:
    names = ("input", "mode", "resources_id", "status", "config", "metadata")
    return await call.store.update_rollout(call.ids["rollout_id"], **{name: call.given(name) for name in names})


async def cancel_rollout(call: Call) -> Any:
    return await call.store.cancel_rollout(call.ids["rollout_id"], call.asked.reason)


async def wait_for_rollouts(call: Call) -> Any:
    asked = call.asked
    slice_s = WAIT_S_MAX if asked.timeout is None else max(0.0, min(asked.timeout, WAIT_S_MAX))
    began = time.monotonic()
    done: list[Rollout] = await _unless_stopping(
        call,
        call.store.wait_for_rollouts(
            rollout_ids=asked.rollout_ids, timeout=slice_s, **_asked_for(count=asked.count, share=asked.share)
        ),
    )
    wants_more = asked.timeout is None or asked.timeout > slice_s
    cut = time.monotonic() - began >= slice_s - CUT_SLACK_S
    return Unfinished(done) if wants_more and cut else done


# --- attempts


async def start_attempt(call: Call) -> Any:
    return await call.store.start_attempt(call.ids["rollout_id"], call.asked.worker_id)


async def query_attempts(call: Call) -> Any:
    return await call.store.query_attempts(call.ids["rollout_id"], **_page(call))


async def latest_attempt(call: Call) -> Any:
    return await call.store.get_latest_attempt(call.ids["rollout_id"])


async def update_attempt(call: Call) -> Any:
    names = ("status", "worker_id", "last_heartbeat_time", "metadata")
    return await call.store.update_attempt(
        call.ids["rollout_id"],
        call.ids["attempt_id"],
        **{name: call.given(name) for name in names},
        **_asked_for(error_type=call.asked.error_type, error_message=call.asked.error_message),
    )


# --- spans


async def add_span(call: Call) -> Any:
    return await call.store.add_span(call.asked)


async def add_many_spans(call: Call) -> Any:
    return await call.store.add_many_spans(call.asked.spans)


async def query_spans(call: Call) -> Any:
    asked = _page(call)
    return await call.store.query_spans(asked.pop("rollout_id"), asked.pop("attempt_id"), **asked)


async def next_span_number(call: Call) -> Any:
    return {"sequence_id": await call.store.get_next_span_sequence_id(call.asked.rollout_id, call.asked.attempt_id)}


async def many_span_numbers(call: Call) -> Any:
    return {"sequence_ids": await call.store.get_many_span_sequence_ids(call.asked.rollout_attempt_ids)}


# --- resources


async def query_resources(call: Call) -> Any:
    return await call.store.query_resources(**_page(call))


async def add_resources(call: Call) -> Any:
    return await call.store.add_resources(call.asked.root)


async def update_resources(call: Call) -> Any:
    return await call.store.update_resources(call.ids["resources_id"], call.asked.root)


async def latest_resources(call: Call) -> Any:
    wait_s = min(call.asked.timeout_s, WAIT_S_MAX)
    return await _unless_stopping(call, call.store.get_latest_resources(**_asked_for(timeout_s=wait_s or None)))


async def resources_by_id(call: Call) -> Any:
    wait_s = min(call.asked.timeout_s, WAIT_S_MAX)
    found = call.store.get_resources_by_id(call.ids["resources_id"], **_asked_for(timeout_s=wait_s or None))
    return await _unless_stopping(call, found)


# --- workers


async def query_workers(call: Call) -> Any:
    return await call.store.query_workers(**_page(call))


async def get_worker(call: Call) -> Any:
    return await call.store.get_worker_by_id(call.ids["worker_id"])


async def update_worker(call: Call) -> Any:
    return await call.store.update_worker(call.ids["worker_id"], call.given("heartbeat_stats"))


async def heartbeat(call: Call) -> Any:
    await call.store.heartbeat(call.asked.worker, call.asked.attempts)


async def _unless_stopping(call: Call, reading: Awaitable[Any]) -> Any:
    """The result of something that may wait and changes nothing.

    Raises:
        StoppingError: the server stops first.
    """
    task, stop = asyncio.ensure_future(reading), asyncio.ensure_future(call.stopping.wait())
    try:
        await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise StoppingError("the store server is being stopped.", next_step="Ask again in a moment.")
        return task.result()
    finally:
        stop.cancel()
        task.cancel()


def _asked_for(**extensions: Any) -> dict[str, Any]:
    """Those that the request makes use of: a store of Agent Lightning's interface alone knows none of them."""
    return {name: value for name, value in extensions.items() if value is not None}


def _page(call: Call) -> dict[str, Any]:
    """The fields of a question for a page.

    Raises:
        StoreError: the page has no room.
    """
    asked = dict(call.asked)
    if asked["limit"] == 0:
        raise StoreError("limit is 0; it must be a number of items from 1 up, or -1 for all")
    return asked
