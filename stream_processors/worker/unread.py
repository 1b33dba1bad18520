"""Records that only another version can read: they stay in the log, and so do the later ones of their keys."""

from __future__ import annotations

import logging
from collections import Counter

from lightstream.schemas.errors import NewerWriterError, UnknownSchemaError

from .inbox import LogRecord

logger = logging.getLogger(__name__)

UNKNOWN_WRITER = "a later version"


class UnreadRecords:
    """Records that wait in one partition for another version of this worker. Order counts within a key, so a key waits
    whole.

    Attributes:
        first_offset: of all that waits; nothing from there on may be committed. ``None`` where nothing waits.
        counts: version -> how many records wait for it, with those behind them.
    """

    def __init__(self) -> None:
        self.first_offset: int | None = None
        self.counts: Counter[str] = Counter()
        self._writers: dict[bytes | None, str] = {}

    def hold(self, key: bytes | None, offset: int | None, error: UnknownSchemaError) -> None:
        """Records of that key wait from now on.

        Args:
            offset: of the first of them, which cannot be read; ``None`` where it is something else, such as a state.
            error: why.
        """
        if not self._writers:
            logger.warning("records wait for another version of this worker: %s", error)
        writer = error.writer if isinstance(error, NewerWriterError) else UNKNOWN_WRITER
        self._writers[key] = writer
        self.counts[writer] += 1
        self._note(offset)

    def takes(self, record: LogRecord) -> bool:
        """Whether the record waits, since its key does; it is counted then."""
        writer = self._writers.get(record.key) if self._writers else None
        if writer is None:
            return False
        self.counts[writer] += 1
        self._note(record.offset)
        return True

    def _note(self, offset: int | None) -> None:
        if offset is not None and (self.first_offset is None or offset < self.first_offset):
            self.first_offset = offset
