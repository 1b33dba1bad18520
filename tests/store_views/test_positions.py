"""Waiting for the view to catch up, woken by the commit itself."""

from __future__ import annotations

import threading

from lightstream.store_views.materialiser import Positions
from tests.support.waiting import eventually

FOREVER_S = 60.0


def test_what_is_reached_is_not_waited_for() -> None:
    positions = Positions({("spans", 0): 5})
    assert positions.wait_for({("spans", 0): 5}, 0.0) == {}
    assert positions.missing({("spans", 0): 6, ("spans", 1): 1}) == {("spans", 0): (6, 5), ("spans", 1): (1, 0)}


def test_a_waiter_returns_once_every_place_is_reached() -> None:
    positions = Positions()
    found: list[object] = []
    wanted = {("spans", 0): 2, ("rollouts", 1): 1}
    waiter = threading.Thread(target=lambda: found.append(positions.wait_for(wanted, FOREVER_S)))
    waiter.start()
    eventually(lambda: positions.awaits({}, wanted))
    assert not positions.awaits({}, {("spans", 0): 2}), "a part is of no use"
    assert positions.awaits({("spans", 0): 2}, {("rollouts", 1): 1})
    assert not positions.awaits(wanted, {("rollouts", 1): 2}), "it is on its way already"
    positions.advance({("spans", 0): 2})
    assert not found
    positions.advance({("rollouts", 1): 3})
    waiter.join(FOREVER_S)
    assert found == [{}]
    assert not positions.awaits({}, wanted)


def test_a_waiter_that_gives_up_says_what_is_missing() -> None:
    positions = Positions({("spans", 0): 1})
    assert positions.wait_for({("spans", 0): 4}, 0.01) == {("spans", 0): (4, 1)}


def test_waiters_are_woken_when_nothing_more_will_come() -> None:
    positions = Positions()
    found: list[object] = []
    waiter = threading.Thread(target=lambda: found.append(positions.wait_for({("spans", 0): 1}, FOREVER_S)))
    waiter.start()
    eventually(lambda: positions.awaits({}, {("spans", 0): 1}))
    positions.close("stopped")
    waiter.join(FOREVER_S)
    assert found == [{("spans", 0): (1, 0)}]
    assert positions.closed == "stopped"
