"""The worker puts off its next fetch only while much comes, in many small portions."""

from __future__ import annotations

import pytest

from lightstream.stream_processors.worker.fetch_pace import BULK_RECORDS, BUSY_PAUSE_S, FetchPace

BEGAN_S = 1000.0


def fed(records: int, *, fetches: int = 100, seconds: float = 1.0) -> FetchPace:
    """After so many records in all, evenly over that time; the last answer came at its end."""
    pace = FetchPace()
    for number in range(fetches):
        now_s = BEGAN_S + number * seconds / fetches
        pace.answered(now_s)
        pace.came(records // fetches, now_s)
    pace.answered(BEGAN_S + seconds)
    return pace


def test_single_calls_wait_for_nobody() -> None:
    assert fed(300).pause_s(BEGAN_S + 1) == 0


def test_while_many_come_the_next_fetch_waits_for_company() -> None:
    assert fed(5000).pause_s(BEGAN_S + 1) == pytest.approx(BUSY_PAUSE_S)


def test_the_time_since_the_last_answer_counts() -> None:
    pace = fed(5000)
    assert pace.pause_s(BEGAN_S + 1 + BUSY_PAUSE_S / 2) == pytest.approx(BUSY_PAUSE_S / 2)
    assert pace.pause_s(BEGAN_S + 1 + BUSY_PAUSE_S * 2) == 0


def test_a_backlog_is_fetched_without_a_pause() -> None:
    assert fed(BULK_RECORDS * 100).pause_s(BEGAN_S + 1) == 0


def test_silence_ends_it() -> None:
    pace = fed(5000)
    pace.came(0, 2000.0)
    pace.answered(2000.0)
    assert pace.pause_s(2000.0) == 0
