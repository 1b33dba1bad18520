"""Room on the disks that a process writes to: who writes much pauses before the last of it, and goes on by itself."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from .settings import Settings

if TYPE_CHECKING:
    from prometheus_client.core import Metric

logger = logging.getLogger(__name__)

LOOK_INTERVAL_S = 0.5
RESUME_FACTOR = 1.125
"""A writer goes on when there is this much more than the least, or it would pause again at once."""


class DiskRoom:
    """Free space in a folder's file system, asked whenever somebody wants to know. For any thread.

    Calling it says why a writer pauses, or ``None`` (:data:`lightstream.runtime.health.Check`). The folder need not
    exist yet. A disk that cannot be asked counts as one without room.

    Args:
        settings: ``disk_free_bytes_min`` is the least free space; at 0 nobody pauses.
        folder: what is written to; unset means the data folder.
        name: of it in metrics.
    """

    def __init__(self, settings: Settings, folder: Path | None = None, *, name: str = "data") -> None:
        self._folder = settings.data_dir if folder is None else folder
        self._bytes_min = settings.disk_free_bytes_min
        self._name = name
        self._is_short = False

    def free_bytes(self) -> int:
        """Bytes that a program without privileges may still write.

        Raises:
            OSError: the file system does not tell.
        """
        folder = self._folder.absolute()
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        found = os.statvfs(folder)
        return found.f_bavail * found.f_frsize

    def __call__(self, more_bytes: int = 0) -> str | None:
        """Say why a writer pauses.

        Args:
            more_bytes: that it is about to write, beside the least.
        """
        if not self._bytes_min:
            return None
        try:
            free_bytes = self.free_bytes()
        except OSError as error:
            self._is_short = True
            return f"the disk of {self._folder} does not tell its free space: {error}"
        least_bytes = self._bytes_min + more_bytes
        wanted_bytes = least_bytes * (RESUME_FACTOR if self._is_short else 1.0)
        self._is_short = free_bytes < wanted_bytes
        if not self._is_short:
            return None
        return (
            f"the disk of {self._folder} has {free_bytes:,} bytes free, and writing goes on at {wanted_bytes:,.0f} "
            f"(LIGHTSTREAM_DISK_FREE_BYTES_MIN); free space there"
        )

    def wait(self, stopping: threading.Event, more_bytes: int = 0) -> bool:
        """Wait until there is room; false where ``stopping`` was set before. Blocking."""
        if (reason := self(more_bytes)) is None:
            return True
        logger.warning("writing pauses: %s", reason)
        while self(more_bytes) is not None:
            if stopping.wait(LOOK_INTERVAL_S):
                return False
        logger.warning("writing goes on: the disk of %s has room", self._folder)
        return True

    async def wait_in_loop(self) -> None:
        """The same on an event loop, until there is room or the task is cancelled."""
        if (reason := self()) is None:
            return
        logger.warning("writing pauses: %s", reason)
        while self() is not None:  # noqa: ASYNC110  # nobody tells of a disk's free space
            await asyncio.sleep(LOOK_INTERVAL_S)
        logger.warning("writing goes on: the disk of %s has room", self._folder)

    def readings(self) -> Iterable[Metric]:
        """Metrics: the free space, and the least that has to be left."""
        from prometheus_client.core import GaugeMetricFamily  # not in the plain install, which needs no metrics

        free = GaugeMetricFamily("lightstream_disk_free_bytes", "Free space of a folder's disk.", labels=["disk"])
        least = GaugeMetricFamily(
            "lightstream_disk_free_bytes_min", "Free space below which its writers pause.", labels=["disk"]
        )
        least.add_metric([self._name], self._bytes_min)
        try:
            free.add_metric([self._name], self.free_bytes())
        except OSError:
            return [least]
        return [free, least]
