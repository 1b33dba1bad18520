"""The broker gathers records for the worker only while many come."""

from __future__ import annotations

from lightstream.stream_processors.worker.fetch_pace import BUSY_BYTES_MIN, BUSY_WAIT_MS, IDLE_WAIT_MS, FetchPace


def fed(records: int, *, fetches: int = 100, seconds: float = 1.0) -> FetchPace:
    """After so many records in all, evenly over that time."""
    pace = FetchPace()
    for number in range(fetches):
        pace.came(records // fetches, 1000.0 + number * seconds / fetches)
    return pace


def test_single_calls_wait_for_nobody() -> None:
    pace = fed(300)
    assert (pace.wait_ms, pace.bytes_min) == (IDLE_WAIT_MS, 1)


def test_a_burst_is_gathered() -> None:
    pace = fed(5000)
    assert (pace.wait_ms, pace.bytes_min) == (BUSY_WAIT_MS, BUSY_BYTES_MIN)


def test_silence_ends_the_gathering() -> None:
    pace = fed(5000)
    pace.came(0, 2000.0)
    assert (pace.wait_ms, pace.bytes_min) == (IDLE_WAIT_MS, 1)
