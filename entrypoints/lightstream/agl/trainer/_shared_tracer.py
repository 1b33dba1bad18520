"""One tracer for all the Runners of a process, made by the first and closed by the last."""

from __future__ import annotations

import os
import threading
from collections.abc import Generator
from contextlib import contextmanager

from lightstream.producers import OtelTracer

__all__ = ["SharedTracer"]


class SharedTracer:
    """Thread-safe. In a process that was forked it is another one."""

    def __init__(self, given: OtelTracer | None) -> None:
        self._given = given
        self._made: OtelTracer | None = None
        self._of_process = 0
        self._users = 0
        self._lock = threading.Lock()

    @contextmanager
    def used(self) -> Generator[OtelTracer]:
        """The tracer, inside."""
        if self._given is not None:
            yield self._given
            return
        with self._lock:
            if self._made is None or self._of_process != os.getpid():
                self._made, self._of_process, self._users = OtelTracer(), os.getpid(), 0
            tracer = self._made
            self._users += 1
        try:
            yield tracer
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._made = None
                    tracer.close()
