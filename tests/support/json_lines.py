"""Log lines as a process with ``log_format=json`` writes them."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager, redirect_stderr
from typing import Any

from lightstream.runtime.logs import log_to_stderr
from lightstream.runtime.settings import Settings


@contextmanager
def logged_as_json() -> Generator[Callable[[], list[dict[str, Any]]]]:
    """Give what was logged since the block began; the root logger is as before it afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    with redirect_stderr(io.StringIO()) as written:
        log_to_stderr(Settings.load(log_format="json"))
        try:
            yield lambda: [json.loads(line) for line in written.getvalue().split("\n") if line]
        finally:
            root.handlers[:] = handlers
            root.setLevel(level)
