"""The wait for rollouts to end: enough of them, in time, and nothing left behind."""

from __future__ import annotations

import gc
import weakref

import pytest

from lightstream.schemas.errors import StoreError
from lightstream.schemas.records import EventKind, RolloutSpec, RolloutState, RolloutStatus, Verdict, VerdictOutcome
from lightstream.store_views.stores.endings import Endings
from lightstream.store_views.stores.validation import enough

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


async def test_it_is_enough_once_as_many_have_ended_as_are_needed() -> None:
    endings = Endings()
    with endings.expect(IDS, needed=2) as waiting, endings.expect(["c"], needed=1) as other:
        endings.ended(ended("c"))
        assert other.enough.done()
        assert not waiting.enough.done()
        endings.ended(ended("a"))
        await waiting.until_enough(None)
        assert sorted(waiting.ended) == ["a", "c"]
        assert endings.awaits("b")
    assert not any(map(endings.awaits, IDS)), "nobody waits for it"


async def test_what_was_over_before_and_what_never_was_are_not_waited_for() -> None:
    with Endings().expect(IDS, needed=3) as waiting:
        waiting.add({"a": ended("a"), "b": ended("b")})
        assert not waiting.enough.done()
        waiting.forget(["c"])
        await waiting.until_enough(None)
        assert sorted(waiting.ended) == ["a", "b"]


async def test_what_ended_counts_when_time_is_over() -> None:
    endings = Endings()
    with endings.expect(IDS, needed=3) as waiting:
        endings.ended(ended("b"))
        await waiting.until_enough(0.0)
        assert sorted(waiting.ended) == ["b"]


async def test_when_the_store_is_closed_nothing_is_waited_for() -> None:
    endings = Endings()
    with endings.expect(IDS, needed=1) as waiting:
        endings.close()
        await waiting.until_enough(None)
        assert not waiting.ended


async def test_what_has_ended_is_freed_with_its_waiter() -> None:
    """No cycle: a waiter on thousands would stop for the collection of what others waited for."""
    gc.collect()
    gc.disable()
    try:
        endings = Endings()
        with endings.expect(IDS, needed=3) as waiting:
            for name in IDS:
                endings.ended(ended(name))
            await waiting.until_enough(None)
            reference = weakref.ref(waiting)
        del waiting
        assert reference() is None
    finally:
        gc.enable()


def test_enough_is_all_or_a_count_or_a_share() -> None:
    assert [enough(5, None, None), enough(5, 2, None), enough(5, None, 0.5)] == [5, 2, 3]
    for count, share in ((6, None), (0, None), (None, 0.0), (None, 1.5), (1, 0.5)):
        with pytest.raises(StoreError, match=r"count|share"):
            enough(5, count, share)
