"""Progress of a view that starts, towards where the log ended then."""

from __future__ import annotations

import logging

import pytest

from lightstream.store_views.materialiser.catch_up import CatchUp, Progress


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_view_that_lacks_nothing_is_not_rebuilding() -> None:
    assert CatchUp({}, {}).progress is None
    assert CatchUp({}, {("spans", 0): 0}).progress is None
    assert CatchUp({("spans", 0): 5, ("rollouts", 0): 1}, {("spans", 0): 5}).progress is None
    assert CatchUp({("spans", 0): 7}, {("spans", 0): 5}).progress is None, "the log has lost records"


def test_progress_rate_and_time_left_are_those_from_where_the_file_stood() -> None:
    clock = Clock()
    catch_up = CatchUp({("spans", 0): 100}, {("spans", 0): 1_100, ("rollouts", 0): 1_000}, now_s=clock)
    assert catch_up.progress == Progress(0, 2_000, 0.0, None)
    clock.now_s += 4.0
    catch_up.advance({("spans", 0): 500, ("workers", 0): 90})
    assert catch_up.progress == Progress(400, 2_000, 100.0, 16.0)
    assert str(catch_up.progress) == "400 of 2,000 records (20 %), 100 a second, 16 s left"
    clock.now_s += 4.0
    catch_up.advance({("spans", 0): 1_300})  # beyond the end of then
    assert catch_up.progress == Progress(1_000, 2_000, 125.0, 8.0)


def test_once_caught_up_it_stays_so_although_the_log_goes_on() -> None:
    catch_up = CatchUp({}, {("spans", 0): 10, ("spans", 1): 10})
    catch_up.advance({("spans", 0): 10})
    assert catch_up.progress is not None, "a part is not all"
    catch_up.advance({("spans", 1): 11})
    assert catch_up.progress is None
    catch_up.advance({("spans", 1): 12})
    assert catch_up.progress is None


def test_the_log_tells_the_progress_every_five_seconds_and_the_end(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    catch_up = CatchUp({}, {("spans", 0): 1_000}, now_s=clock)
    with caplog.at_level(logging.INFO):
        for second in range(1, 11):
            clock.now_s = 100.0 + second
            catch_up.advance({("spans", 0): 100 * second})
    assert caplog.messages == [
        "the view catches up: 500 of 1,000 records (50 %), 100 a second, 5 s left",
        "the view has caught up: 1,000 records in 10 s",
    ]


def test_a_short_catching_up_is_not_worth_a_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        CatchUp({}, {("spans", 0): 3}, now_s=Clock()).advance({("spans", 0): 3})
    assert caplog.messages == []
