"""Ctrl-C that cannot be lost."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

LOOK_INTERVAL_S = 0.5
"""A signal that comes just before Python begins to wait does not end the wait."""


class Interrupts:
    """Keeps in mind that a signal came, while the block runs. A context manager.

    Python raises KeyboardInterrupt wherever the program is. In a callback of a weak reference, or in code that catches
    all, it is swallowed; :meth:`check` raises it again. A second signal of the same kind ends the process at once.
    Outside the main thread, which alone gets signals, nothing changes; nor does SIGINT where the program has a handler
    of its own. Blocks may be nested: the inner one knows of the outer one's signal.

    Args:
        numbers: signals that end the program as Ctrl-C does, in place of what they did.
    """

    def __init__(self, *numbers: signal.Signals) -> None:
        self._numbers = numbers
        self._pressed = False
        self._before: dict[signal.Signals, Any] = {}
        self._outer: Interrupts | None = None

    def __enter__(self) -> Self:
        self._pressed = False
        if threading.current_thread() is threading.main_thread():
            handler = signal.getsignal(signal.SIGINT)
            outer = getattr(handler, "__self__", None)
            self._outer = outer if isinstance(outer, Interrupts) else None
            own = handler is signal.default_int_handler
            for number in {*self._numbers, *((signal.SIGINT,) if own else ())}:
                self._before[number] = signal.signal(number, self._press)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._outer = None
        while self._before:
            signal.signal(*self._before.popitem())

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal came."""
        if self._pressed:
            raise KeyboardInterrupt
        if self._outer is not None:
            self._outer.check()

    def wait(self, look: Callable[[], None] | None = None) -> None:
        """Wait until a signal comes; raises KeyboardInterrupt then, or the error of ``look``, called meanwhile."""
        while True:
            self.check()
            if look is not None:
                look()
            time.sleep(LOOK_INTERVAL_S)

    def _press(self, number: int, frame: FrameType | None) -> None:
        self._pressed = True
        signal.signal(number, signal.SIG_DFL)
        raise KeyboardInterrupt
