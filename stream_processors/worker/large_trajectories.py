"""Trajectories that fit into no record: their replacements in the log, and the files that hold them whole.

The file of a large trajectory is deleted once no record can name it any more. A record is logged right after its file
was written or touched, so all records of the topic that name a file are as old as the file, or older. Once the oldest
record that is left is younger than a file, nothing names the file.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import threading
import time
from collections.abc import Iterable, Iterator

from lightstream.runtime.clock import NANOS_PER_SECOND, Clock
from lightstream.runtime.disk import DiskRoom
from lightstream.runtime.kafka import partitions_of
from lightstream.runtime.large_records import Swept, large_records_folder, put_aside, sweep
from lightstream.runtime.settings import Settings
from lightstream.schemas.both_ends import both_ends
from lightstream.schemas.codec import Codec
from lightstream.schemas.errors import ServiceUnavailableError
from lightstream.schemas.records import Drop, DropReason, Trajectory
from lightstream.schemas.topics import TRAJECTORIES

from .log_reader import LogReader

logger = logging.getLogger(__name__)

DETAILS_CHARS_MAX = 1_000_000
"""Of all drops together; those after it have no detail, only their reason."""
ERROR_CHARS_MAX = 10_000

FIRST_SWEEP_S, SWEEP_INTERVAL_S = 60.0, 3600.0
"""After the start, when there is other work, and from one to the next."""
MILLIS_PER_SECOND = 1000

FULL = (errno.ENOSPC, errno.EDQUOT)
FULL_PAUSE_S = 5.0


def smaller(trajectory: Trajectory, problem: str, settings: Settings, codec: Codec) -> Trajectory:
    """The address of the whole trajectory, written to a file; without a folder for that, its calls' fates.

    Blocking: room on the folder's disk is waited for.

    Args:
        problem: why it does not fit.
    """
    folder = large_records_folder(settings)
    if folder is None:
        return without_triplets(trajectory, f"{problem} LIGHTSTREAM_LARGE_RECORDS_DIR names no folder for it.")
    room = DiskRoom(settings, folder)
    while True:
        room.wait(threading.Event())
        try:
            return put_aside(trajectory, codec, folder)
        except OSError as failure:
            if failure.errno in FULL:
                logger.error("a large trajectory waits for room: %s", failure)
                time.sleep(FULL_PAUSE_S)
                continue
            logger.error("a trajectory of rollout %s cannot be stored in a file: %s", trajectory.rollout_id, failure)
            return without_triplets(trajectory, f"{problem} It could not be stored in a file: {failure}.")


def without_triplets(trajectory: Trajectory, detail: str) -> Trajectory:
    """The trajectory of an attempt whose data fits into no record: every call is dropped as ``too_large``."""
    drops = [
        Drop(
            span_id=triplet.span_id,
            trace_id=triplet.trace_id,
            response_id=triplet.response_id,
            reason=DropReason.TOO_LARGE,
            detail=detail,
            choice_index=triplet.choice_index,
            source_offset=triplet.source_offset,
            call_index=triplet.call_index,
            agent_name=triplet.agent_name,
            model=triplet.model,
        )
        for triplet in trajectory.triplets
    ]
    kept = list(_with_fewer_details([*drops, *trajectory.drops]))
    drops = [*kept[len(drops) :], *kept[: len(drops)]]
    return trajectory.model_copy(
        update={"triplets": [], "images": [], "drops": drops, "input_json": "null", "rewards": []}
    )


def _with_fewer_details(drops: Iterable[Drop]) -> Iterator[Drop]:
    room = DETAILS_CHARS_MAX
    for drop in drops:
        room -= len(drop.detail)
        yield drop if room >= 0 or not drop.detail else drop.model_copy(update={"detail": ""})


def without_calls(trajectory: Trajectory) -> Trajectory:
    """The end of an attempt whose list of calls does not fit either: it counts as full from its beginning on.

    So the view shows each of its calls as ``too_large``, from the spans alone.
    """
    message = trajectory.error_message
    return trajectory.model_copy(
        update={
            "triplets": [],
            "images": [],
            "drops": [],
            "rewards": [],
            "notes": [],
            "input_json": "null",
            "call_count": 0,
            "error_message": None if message is None else both_ends(message, ERROR_CHARS_MAX),
            "full_from_offset": max(trajectory.source.first_offset, 0),
        }
    )


def sweep_large_records(settings: Settings, group_id: str, clock: Clock) -> Swept:
    """Delete files that nothing can name any more; blocking. Where the topic keeps its records forever, that is
    nothing.

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
