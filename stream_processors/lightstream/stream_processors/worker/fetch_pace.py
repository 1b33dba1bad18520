"""How long a fetch may be put off, so that the next brings more: not at all while little comes. Pure."""

from __future__ import annotations

__all__ = ["BUSY_PAUSE_S", "FETCH_WAIT_MS", "FetchPace"]

FETCH_WAIT_MS = 100
"""How long the broker holds a fetch that finds nothing; one record ends the wait. Faust fixes 1,500 ms; but aiokafka
keeps one fetch per broker in flight, so a partition that was left out of it (its records were still in use) waits for
it to return."""

BUSY_PAUSE_S = 0.006
"""Between an answer and the next fetch while much comes. Each costs worker and broker more than a millisecond, and what
it brings is processed and written together. An attempt's closing mark, which the event of its end leads to, is durable
within 5 ms: so the very next fetch brings it. (A broker that gathers for as long, instead, makes what comes a moment
after it wait for twice that.)"""

BUSY_RECORDS_PER_S = 600
"""More than one client causes who makes one call after another: nobody's single call waits for company."""

BULK_RECORDS = 500
"""A fetch with so many leaves much more to fetch: there is nothing to wait for."""

WINDOW_S = 0.1


class FetchPace:
    """Counts what comes, and says when to fetch again. Not thread-safe; times are monotonic, in seconds."""

    def __init__(self) -> None:
        self._since_s = 0.0
        self._records = 0
        self._answered_s = 0.0
        self._bulk = False
        self.busy = False

    def answered(self, now_s: float) -> None:
        """The broker answered a fetch."""
        self._answered_s = now_s

    def came(self, records: int, now_s: float) -> None:
        """A fetch brought so many records."""
        self._bulk = records >= BULK_RECORDS
        self._records += records
        passed_s = now_s - self._since_s
        if passed_s >= WINDOW_S:
            self.busy = self._records >= BUSY_RECORDS_PER_S * passed_s
            self._since_s, self._records = now_s, 0

    def pause_s(self, now_s: float) -> float:
        """How long to wait before the next fetch is sent; 0 for not at all."""
        if not self.busy or self._bulk:
            return 0.0
        return max(0.0, self._answered_s + BUSY_PAUSE_S - now_s)
