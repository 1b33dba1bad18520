"""The wait for rollouts to end: enough of them, in time, and nothing left behind."""

from __future__ import annotations

import asyncio
import gc
import weakref
from concurrent.futures import Future

import pytest

from lightstream.schemas.errors import StoreError
from lightstream.schemas.records import EventKind, RolloutSpec, RolloutState, RolloutStatus, Verdict, VerdictOutcome
from lightstream.store_views.stores._ends import Ends, enough

IDS = ["a", "b", "c"]


def ended(rollout_id: str) -> RolloutState:
    return RolloutState(
        rollout=RolloutSpec(rollout_id=rollout_id),
        status=RolloutStatus.SUCCEEDED,
        updated_unix_nano=2,
        ended_unix_nano=2,
        source_offset=1,
        verdict=Verdict(event_id="e", kind=EventKind.ROLLOUT_UPDATED, outcome=VerdictOutcome.APPLIED),
    )


def expected() -> dict[str, Future[RolloutState]]:
    return {name: Future() for name in IDS}


async def test_it_is_enough_once_as_many_have_ended_as_are_needed() -> None:
    futures = expected()
    ends = Ends(futures, needed=2)
    for name in ("c", "a"):
        assert not ends.enough.done()
        futures[name].set_result(ended(name))
        await asyncio.sleep(0)  # the loop is called from outside
    await ends.within(None)
    ends.close()
    assert sorted(ends.ended) == ["a", "c"]
    assert futures["b"].cancelled(), "nobody waits for it"


async def test_what_was_over_before_and_what_never_was_are_not_waited_for() -> None:
    ends = Ends(expected(), needed=3)
    ends.add({"a": ended("a"), "b": ended("b")})
    assert not ends.enough.done()
    ends.forget(["c"])
    await ends.within(None)
    ends.close()
    assert sorted(ends.ended) == ["a", "b"]


async def test_what_ended_and_was_not_told_of_yet_counts_when_time_is_over() -> None:
    futures = expected()
    ends = Ends(futures, needed=3)
    futures["b"].set_result(ended("b"))  # the loop does not know before its next turn
    ends.close()
    assert sorted(ends.ended) == ["b"]


async def test_when_the_store_is_closed_nothing_is_waited_for() -> None:
    futures = expected()
    ends = Ends(futures, needed=1)
    for future in futures.values():
        future.cancel()
    await ends.within(None)
    ends.close()
    assert not ends.ended


def test_what_has_ended_is_freed_with_whoever_waited() -> None:
    """No cycle: a waiter on thousands would stop for the collection of what others waited for."""

    async def scenario() -> weakref.ref[object]:
        futures = expected()
        ends = Ends(futures, needed=3)
        for name, future in futures.items():
            future.set_result(ended(name))
        await ends.within(None)
        ends.close()
        return weakref.ref(ends.ended["a"])

    gc.collect()
    gc.disable()
    try:
        assert asyncio.run(scenario())() is None
    finally:
        gc.enable()


def test_enough_is_all_or_a_count_or_a_share() -> None:
    assert [enough(5, None, None), enough(5, 2, None), enough(5, None, 0.5)] == [5, 2, 3]
    for count, share in ((6, None), (0, None), (None, 0.0), (None, 1.5), (1, 0.5)):
        with pytest.raises(StoreError, match=r"count|share"):
            enough(5, count, share)
