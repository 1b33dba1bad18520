"""How long the broker may gather records before it answers a fetch: not at all while little comes. Pure."""

from __future__ import annotations

__all__ = ["BUSY_BYTES_MIN", "BUSY_WAIT_MS", "IDLE_WAIT_MS", "FetchPace"]

IDLE_WAIT_MS = 100
"""How long the broker holds a fetch that finds nothing; one record ends the wait. Faust fixes 1,500 ms; but aiokafka
keeps one fetch per broker in flight, so a partition that was left out of it (its records were still in hand) waits for
it to return."""

BUSY_WAIT_MS = 6
"""How long it gathers while much comes. Each fetch costs worker and broker half a millisecond, and what it brings is
processed and written together. An attempt's closing mark, which the fact of its end leads to, is durable within 5: so
the very next fetch brings it."""

BUSY_BYTES_MIN = 256 * 1024
"""Or until there are so many bytes, which are a batch's work by themselves."""

BUSY_RECORDS_PER_S = 600
"""More than one client causes who makes one call after another: nobody's single call waits for company."""

WINDOW_S = 0.1


class FetchPace:
    """Counts what comes, and says what the next fetch should ask for. Not thread-safe."""

    def __init__(self) -> None:
        self._since_s = 0.0
        self._records = 0
        self.busy = False

    def came(self, records: int, now_s: float) -> None:
        """A fetch brought so many records; ``now_s`` is monotonic, in seconds."""
        self._records += records
        passed_s = now_s - self._since_s
        if passed_s >= WINDOW_S:
            self.busy = self._records >= BUSY_RECORDS_PER_S * passed_s
            self._since_s, self._records = now_s, 0

    @property
    def wait_ms(self) -> int:
        """How long the next fetch may wait."""
        return BUSY_WAIT_MS if self.busy else IDLE_WAIT_MS

    @property
    def bytes_min(self) -> int:
        """What ends the wait."""
        return BUSY_BYTES_MIN if self.busy else 1
