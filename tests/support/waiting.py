"""Wait for a condition, never for a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
POLL_INTERVAL_S = 0.02


def eventually(predicate: Callable[[], T], *, timeout_s: float = 300.0, what: str = "") -> T:
    """Call ``predicate`` until it returns something true, and return that.

    Raises:
        AssertionError: it did not within ``timeout_s`` seconds; shows the last value.
    """
    deadline = time.monotonic() + timeout_s
    pause = threading.Event()
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"{what or predicate} did not hold within {timeout_s} s; last seen: {value!r}")
        pause.wait(POLL_INTERVAL_S)
