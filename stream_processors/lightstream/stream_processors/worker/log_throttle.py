"""A client that loses its broker says so a hundred times a second; the log needs to hear it once in a while."""

from __future__ import annotations

import logging
import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from lightstream.runtime.clock import NANOS_PER_SECOND, Clock, SystemClock

__all__ = ["LogThrottle", "throttled"]

INTERVAL_S = 10.0
"""Between two lines that say the same. While a broker is away, aiokafka writes 180 lines a second without this."""

KINDS_MAX = 1000
"""Kinds of lines told apart; beyond, the oldest is forgotten (and then said once more)."""

DIGITS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class _Kind:
    said_s: float
    held_back: int = 0


class LogThrottle(logging.Handler):
    """Passes records on to the root logger's handlers: the first of each kind, then one of it every ten seconds.

    Records of one logger and level whose texts differ in numbers only are of one kind. The next that passes says how
    many were held back, and closing says what was held back since: no line vanishes uncounted.

    Args:
        logger: the logger whose records (and whose children's) come here.
    """

    def __init__(self, logger: logging.Logger, *, interval_s: float = INTERVAL_S, clock: Clock | None = None) -> None:
        super().__init__()
        self._logger = logger
        self._interval_s = interval_s
        self._clock = clock or SystemClock()
        self._kinds: dict[tuple[str, int, str], _Kind] = {}

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        key = (record.name, record.levelno, DIGITS.sub("#", text))
        now_s = self._clock.now_unix_nano() / NANOS_PER_SECOND
        known = self._kinds.pop(key, None)
        if known is not None and now_s - known.said_s < self._interval_s:
            self._kinds[key] = replace(known, held_back=known.held_back + 1)
            return
        if known is not None and known.held_back:
            seconds = now_s - known.said_s
            record.msg, record.args = f"{text} ({known.held_back} more like this in the last {seconds:.0f} s)", ()
        if len(self._kinds) >= KINDS_MAX:
            del self._kinds[next(iter(self._kinds))]
        self._kinds[key] = _Kind(now_s)
        self._pass_on(record)

    def close(self) -> None:
        """Log what was held back and not reported yet."""
        for (name, level, text), kind in self._kinds.items():
            if kind.held_back:
                told = f"{text} ({kind.held_back} more like this held back)"
                self._pass_on(logging.LogRecord(name, level, __file__, 0, told, (), None))
        self._kinds.clear()
        super().close()

    def _pass_on(self, record: logging.LogRecord) -> None:
        above = self._logger.parent
        if above is not None:
            above.callHandlers(record)


@contextmanager
def throttled(name: str) -> Generator[None]:
    """Throttle the records of that logger and its children until the end of the block."""
    logger = logging.getLogger(name)
    throttle = LogThrottle(logger)
    propagate, logger.propagate = logger.propagate, False
    logger.addHandler(throttle)
    try:
        yield
    finally:
        logger.removeHandler(throttle)
        logger.propagate = propagate
        throttle.close()
