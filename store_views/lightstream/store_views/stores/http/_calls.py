"""What the store does for each route: from the parsed request to the method's result."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from lightstream.schemas.errors import StoreError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.records import ANY_RUN
from lightstream.schemas.types import UNSET, AttemptedRollout, ResourcesUpdate, Rollout

from ._handing_out import HandingOut
from ._waits import taken_unless_stopping, unless_stopping
from ._wire import TRACES_PATH, WAIT_S_MAX

__all__ = ["Call", "HandedOut", "Handler", "Unfinished"]

CUT_SLACK_S = 0.1
"""A wait that returns this much before the end of its slice may have been ended by it: clocks differ."""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A result that came because the request's time was over, not because the wait was."""

    value: Any


@dataclass(frozen=True, slots=True)
class HandedOut:
    """A result that tells its client to run these rollouts."""

    value: Any
    rollouts: Sequence[AttemptedRollout]


@dataclass(frozen=True, slots=True)
class Call:
    """One request.

    Attributes:
        ids: the path's ids by name.
        asked: the parsed body or query string.
        stopping: set when the server begins to stop.
        handing_out: knows of answers that dispatch rollouts.
        asks_again: the client knows of answers that are :class:`Unfinished`.
        takes_traces: whether this server takes OTLP traces itself.
    """

    store: LightningStore
    ids: Mapping[str, str]
    asked: Any
    stopping: asyncio.Event
    handing_out: HandingOut
    asks_again: bool = False
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


async def dequeue_rollouts(call: Call) -> HandedOut:
    asked = call.asked
    if asked.limit <= 0:
        return HandedOut([], [])
    wait_s = asked.timeout_s or None
    run_id = None if asked.run_id == ANY_RUN else asked.run_id  # which every store dispatches if nothing else is said
    dequeueing = call.store.dequeue_many_rollouts(
        limit=asked.limit, worker_id=asked.worker_id, **_asked_for(timeout_s=wait_s, run_id=run_id)
    )
    taken = await taken_unless_stopping(call.stopping, call.store, dequeueing, waits=wait_s is not None)
    return HandedOut(taken, taken)


async def give_back(call: Call) -> Any:
    await call.handing_out.give_back(call.asked.key)


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
            rollout_id=asked.rollout_id,
            run_id=asked.run_id,
            group_id=asked.group_id,
            group_size=asked.group_size,
            assembly=asked.assembly,
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
    wait_s = None if asked.timeout is None else max(0.0, asked.timeout)
    slice_s = min(math.inf if wait_s is None else wait_s, WAIT_S_MAX) if call.asks_again else wait_s
    began = time.monotonic()
    done: list[Rollout] = await unless_stopping(
        call.stopping,
        call.store.wait_for_rollouts(
            rollout_ids=asked.rollout_ids, timeout=slice_s, **_asked_for(count=asked.count, share=asked.share)
        ),
    )
    is_cut = slice_s is not None and slice_s != wait_s and time.monotonic() - began >= slice_s - CUT_SLACK_S
    return Unfinished(done) if is_cut else done


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
    return await _found_resources(call, call.store.get_latest_resources)


async def resources_by_id(call: Call) -> Any:
    return await _found_resources(call, partial(call.store.get_resources_by_id, call.ids["resources_id"]))


async def _found_resources(call: Call, get: Callable[..., Awaitable[ResourcesUpdate | None]]) -> ResourcesUpdate | None:
    """In slices: a store may wait in a thread, which goes on though its client has left."""
    until = time.monotonic() + call.asked.timeout_s
    while True:
        wait_s = max(0.0, min(until - time.monotonic(), WAIT_S_MAX))
        found: ResourcesUpdate | None = await unless_stopping(
            call.stopping, get(**_asked_for(timeout_s=wait_s or None))
        )
        if found is not None or time.monotonic() >= until:
            return found


# --- workers


async def query_workers(call: Call) -> Any:
    return await call.store.query_workers(**_page(call))


async def get_worker(call: Call) -> Any:
    return await call.store.get_worker_by_id(call.ids["worker_id"])


async def update_worker(call: Call) -> Any:
    return await call.store.update_worker(call.ids["worker_id"], call.given("heartbeat_stats"))


async def heartbeat(call: Call) -> Any:
    await call.store.heartbeat(call.asked.worker, call.asked.attempts)


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
