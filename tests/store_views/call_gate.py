"""Calls of a part of the view in this process, which a test lets through."""

from __future__ import annotations

import threading
from typing import Any

import pytest

WAIT_S = 600.0


class CallGate:
    """Holds calls of a method while it is closed.

    Attributes:
        calls_waiting: how many are held now.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, part: type, name: str, *, is_open: bool = False) -> None:
        self._changed = threading.Condition()
        self._is_open = is_open
        self._allowed = 0
        self.calls_waiting = 0
        method = getattr(part, name)

        def wait_and_call(*arguments: Any, **options: Any) -> Any:
            self._wait()
            return method(*arguments, **options)

        monkeypatch.setattr(part, name, wait_and_call)

    def open(self) -> None:
        """Let calls through from now on."""
        with self._changed:
            self._is_open = True
            self._changed.notify_all()

    def close(self) -> None:
        """Let no further calls through."""
        with self._changed:
            self._is_open = False

    def allow_one(self) -> None:
        """Let a single call through."""
        with self._changed:
            self._allowed += 1
            self._changed.notify_all()

    def _wait(self) -> None:
        with self._changed:
            self.calls_waiting += 1
            assert self._changed.wait_for(lambda: self._is_open or self._allowed, WAIT_S), "the gate stayed closed"
            self.calls_waiting -= 1
            if not self._is_open:
                self._allowed -= 1
