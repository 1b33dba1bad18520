"""Ctrl-C that cannot be swallowed."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

__all__ = ["Interrupts"]


class Interrupts:
    """Keeps in mind that Ctrl-C was pressed, while the block runs. A context manager.

    Python raises KeyboardInterrupt wherever the program is. In a callback of a weak reference, or in code that catches
    all, it is swallowed; :meth:`check` raises it again. A second Ctrl-C ends the process at once. Outside the main
    thread, which alone gets signals, and where the program has a handler of its own, nothing changes.
    """

    def __init__(self) -> None:
        self._pressed = False
        self._before: Any = None

    def __enter__(self) -> Self:
        self._pressed = False
        handled = threading.current_thread() is threading.main_thread()
        if handled and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._before = signal.signal(signal.SIGINT, self._press)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def check(self) -> None:
        """Raise KeyboardInterrupt if Ctrl-C was pressed."""
        if self._pressed:
            raise KeyboardInterrupt

    def _press(self, number: int, frame: FrameType | None) -> None:
        self._pressed = True
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        raise KeyboardInterrupt
