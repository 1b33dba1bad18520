"""A view in this process that takes rows in only when a test lets it."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from lightstream.store_views.materialiser import ViewDatabase

__all__ = ["AppendGate"]

WAIT_S = 120.0


class AppendGate:
    """Closed until :meth:`open`, and again from :meth:`close` on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._may_append = threading.Event()
        append = ViewDatabase.append

        def wait_and_append(*arguments: Any) -> None:
            assert self._may_append.wait(WAIT_S)
            append(*arguments)

        monkeypatch.setattr(ViewDatabase, "append", wait_and_append)

    def open(self) -> None:
        """Let rows in."""
        self._may_append.set()

    def close(self) -> None:
        """Let no further rows in."""
        self._may_append.clear()
