"""A name in the consumer group that outlives a kill, so that a restarted worker has its partitions back at once."""

from __future__ import annotations

import fcntl
import hashlib
import socket
from typing import IO

from lightstream.runtime.settings import Settings

__all__ = ["Membership"]


class Membership:
    """Static membership (KIP-345) of the worker of this machine and data folder.

    Without it, Kafka keeps a killed worker's partitions for it until the session times out, 6 s later. With it, the
    next process of that name takes them over; so only one may have it, and a lock on a file, which ends with the
    process however that ends, says which. A second worker with the same data folder joins without a name.

    Attributes:
        instance_id: the name, or ``None`` for a worker that has none.
    """

    def __init__(self, settings: Settings) -> None:
        folder = settings.data_dir / "worker"
        folder.mkdir(parents=True, exist_ok=True)
        self.instance_id: str | None = None
        self._lock: IO[bytes] = (folder / "member.lock").open("wb")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        place = f"{socket.gethostname()}:{settings.data_dir.resolve()}"
        self.instance_id = f"worker-{hashlib.sha256(place.encode()).hexdigest()[:16]}"

    def close(self) -> None:
        """Give the name up."""
        self._lock.close()
