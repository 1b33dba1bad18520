"""Deletes the files of large trajectories that no record can name any more.

A record is logged right after its file was written or touched, so all records of the topic that name a file are as old
as the file, or older. Once the oldest record that is left is younger than a file, nothing names the file.
"""

from __future__ import annotations

import asyncio
import logging

from lightstream.runtime.clock import NANOS_PER_SECOND, Clock
from lightstream.runtime.kafka import partitions_of
from lightstream.runtime.large_records import Swept, large_records_folder, sweep
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import ServiceUnavailableError
from lightstream.schemas.topics import TRAJECTORIES

from .log_reader import LogReader

__all__ = ["sweep_for_ever", "sweep_large_records"]

logger = logging.getLogger(__name__)

FIRST_SWEEP_S, SWEEP_INTERVAL_S = 60.0, 3600.0
"""After the start, when there is other work, and from one to the next."""
MILLIS_PER_SECOND = 1000


def sweep_large_records(settings: Settings, group_id: str, clock: Clock) -> Swept:
    """Delete what nothing can name any more; blocking. Where the topic keeps its records forever, that is nothing.

    Raises:
        ServiceUnavailableError: the cluster does not answer; nothing was deleted.
        OSError: a file cannot be deleted.
    """
    folder = large_records_folder(settings)
    if folder is None or not folder.is_dir():
        return Swept()
    now_s = clock.now_unix_nano() / NANOS_PER_SECOND
    oldest_s = now_s
    for partition in partitions_of(settings, TRAJECTORIES):  # as many as there are, whatever was set
        messages = LogReader(settings, group_id, TRAJECTORIES, partition).records()
        first = next(messages, None)
        messages.close()
        if first is not None:
            oldest_s = min(oldest_s, max(first.timestamp()[1], 0) / MILLIS_PER_SECOND)
    return sweep(folder, oldest_s - settings.large_record_grace_s, now_s)


async def sweep_for_ever(settings: Settings, group_id: str, clock: Clock) -> None:
    """Sweep now and then. Several workers may do so; failures are logged, and retried the next time."""
    pause_s = FIRST_SWEEP_S
    while settings.large_records_dir is not None:
        await asyncio.sleep(pause_s)
        pause_s = SWEEP_INTERVAL_S
        try:
            swept = await asyncio.to_thread(sweep_large_records, settings, group_id, clock)
        except (ServiceUnavailableError, OSError) as error:
            logger.warning("large trajectories were not swept: %s", error)
        else:
            if swept.files:
                logger.info("no record names %d large trajectories of %d bytes; deleted", swept.files, swept.size_bytes)
