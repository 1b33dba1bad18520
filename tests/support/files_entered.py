"""Which of the product's files something enters: how many somebody reads who follows it."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

OF_EVERY_SERVER = {
    f"runtime/{name}.py" for name in ("health", "http/access", "http/connections", "http/door", "metrics")
}
"""What each request of each server passes before it reaches the application."""


@contextmanager
def files_entered() -> Generator[set[str]]:
    """The product's files in which a function is called, on threads that begin within the block."""
    entered: set[str] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and "/lightstream/" in name and "site-packages" not in name:
            entered.add(name.rpartition("/lightstream/")[2])

    threading.setprofile(note)
    try:
        yield entered
    finally:
        threading.setprofile(None)
