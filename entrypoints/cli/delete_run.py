"""``lightstream runs delete``: the records of a run leave the view, its checkpoints and large records the disk."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from lightstream.runtime.kafka import KafkaPublisher, PartitionReader, decoded, of_another_run, partitions_of
from lightstream.runtime.large_records import file_of
from lightstream.runtime.releases import ReleaseLog
from lightstream.runtime.schema_registry import codec_for
from lightstream.runtime.settings import Settings
from lightstream.schemas.codec import Codec
from lightstream.schemas.errors import DecodeError, LightstreamError
from lightstream.schemas.policy_names import base_of_model
from lightstream.schemas.records import PartitionOffset, ResourcesRecord, RolloutState, RunDeleted, Trajectory
from lightstream.schemas.topics import DELETIONS, RESOURCES, ROLLOUTS, TOPICS, TRAJECTORIES

from .load import needs

GROUP_ID = "lightstream-runs-delete"
WRITE_TIMEOUT_S = 30.0
BLOCK_BYTES = 512
"""Unit of ``st_blocks``, whatever the file system's own blocks are."""


class RunInUseError(LightstreamError):
    """The run may not be deleted now."""


@dataclass(frozen=True, slots=True)
class Deleted:
    """The gains of a deletion.

    Attributes:
        checkpoint_bytes: of checkpoints, those for recovery included; what another name still holds is not counted.
        large_record_bytes: of large trajectories.
        rollouts: how many rollouts of the run the log still names.
    """

    checkpoint_bytes: int
    large_record_bytes: int
    rollouts: int


def delete_run(settings: Settings, run: str) -> Deleted:
    """Delete a run. Killed in the middle, or done already, it can be done again.

    First the deletion is written to the log, durably: views leave the run's records out from then on. Then its files
    go. The log's own bytes go at its retention.

    Raises:
        RunInUseError: rollouts of the run are not over, or no run has such a name. Nothing was deleted.
        TrainingError: the run is being trained. Nothing was deleted.
        ServiceUnavailableError, PublishError: Kafka does not answer.
        OSError: a file cannot be deleted.
    """
    with needs("train"):
        from lightstream.trainers.run.checkpoint import run_checkpoints
        from lightstream.trainers.run.lock import NAME, RunLock
    if not run:
        raise RunInUseError("rollouts that belong to no run cannot be deleted.", next_step="Name a run.")
    codec = codec_for(settings)
    with RunLock(settings, trainer_id=GROUP_ID, run_id=run, trains=False):
        rollouts = _rollouts(settings, codec, run)
        waiting = sum(not is_over for is_over in rollouts.values())
        if waiting:
            raise RunInUseError(
                f"{waiting:,} rollouts of run {run!r} are not over.",
                next_step=f"End them with `lightstream runs cancel {run}`, and say this again.",
            )
        serving = [
            state.release
            for state in ReleaseLog(settings).states().values()
            if run in {base_of_model(model).partition("/")[0] for model in (state.stable, state.candidate) if model}
        ]
        if serving:
            raise RunInUseError(
                f"run {run!r} serves release {serving[0]!r}.",
                next_step=f"Name another model first: lightstream release set {serving[0]} --stable MODEL.",
            )
        files = _large_records(settings, codec, run)
        resources = _resources(settings, codec, run)
        _write_down(settings, codec, run, resources)
        large_bytes = sum(_delete_file(path) for path in files)
        checkpoint_bytes = 0
        if NAME.fullmatch(run) is not None:  # else no training has it, and it may be no name of a folder
            recovery = settings.data_dir.absolute() / "recovery" / run
            checkpoint_bytes = sum(map(_delete_folder, (run_checkpoints(settings, run).root, recovery)))
    return Deleted(checkpoint_bytes, large_bytes, len(rollouts))


def _rollouts(settings: Settings, codec: Codec, run: str) -> dict[str, bool]:
    """The run's rollouts, as ``rollouts`` has them; whether each is over."""
    found: dict[str, tuple[int, bool]] = {}
    for partition in partitions_of(settings, ROLLOUTS):
        for message in PartitionReader(settings, ROLLOUTS, partition, group_id=GROUP_ID).records():
            try:
                state = decoded(codec, message) if message.value() is not None else None
            except DecodeError:
                continue  # the view tells of it
            if isinstance(state, RolloutState) and state.rollout.run_id == run and state.rollout.rollout_id:
                known = found.get(state.rollout.rollout_id)
                if known is None or known[0] < state.source_offset:
                    found[state.rollout.rollout_id] = state.source_offset, state.status.is_terminal
    return {rollout_id: is_over for rollout_id, (_, is_over) in found.items()}


def _resources(settings: Settings, codec: Codec, run: str) -> list[str]:
    """Keys in ``resources`` whose last record is the run's. Stores and policy servers read that topic."""
    owners: dict[str, str] = {}
    for message in PartitionReader(settings, RESOURCES, 0, group_id=GROUP_ID).records():
        key = (message.key() or b"").decode("utf-8", "replace")
        try:
            record = decoded(codec, message) if message.value() is not None else None
        except DecodeError:
            record = None  # the view tells of it
        owners[key] = record.run_id if isinstance(record, ResourcesRecord) else ""
    return [key for key, owner in owners.items() if owner == run]


def _large_records(settings: Settings, codec: Codec, run: str) -> set[Path]:
    """Files of the run's large trajectories. None is another run's: its name is the digest of what says the run."""
    files: set[Path] = set()
    for partition in partitions_of(settings, TRAJECTORIES):
        for message in PartitionReader(settings, TRAJECTORIES, partition, group_id=GROUP_ID).records():
            if message.value() is None or of_another_run(message, run):
                continue
            try:
                record = decoded(codec, message)
            except DecodeError:
                continue
            if isinstance(record, Trajectory) and record.run_id == run and record.payload_url:
                path = file_of(record, settings)
                if path is not None:
                    files.add(path)
    return files


def _write_down(settings: Settings, codec: Codec, run: str, resources: list[str]) -> None:
    """Write the deletion to the log, with the ends of all partitions now, and that the run's resources are gone."""
    ends = [
        PartitionOffset(topic=topic.name, partition=partition, offset=end)
        for topic in TOPICS
        if topic is not DELETIONS
        for partition in partitions_of(settings, topic)
        for end in [PartitionReader(settings, topic, partition, group_id=GROUP_ID).watermarks()[1]]
    ]
    record = RunDeleted(run_id=run, positions=ends, deleted_unix_nano=time.time_ns())
    publisher = KafkaPublisher(settings, codec=codec, linger_ms=0.0)
    try:
        publisher.publish(DELETIONS, run, record).result(WRITE_TIMEOUT_S)
        for written in [publisher.publish_encoded(RESOURCES, key, None) for key in resources]:
            written.result(WRITE_TIMEOUT_S)
    finally:
        publisher.close()


def _delete_folder(folder: Path) -> int:
    """Delete a folder, which may be missing; returns the bytes that the disk has back."""
    if folder.is_symlink() or not folder.is_dir():
        return 0
    freed = 0
    for parent, _, names in os.walk(folder):
        freed += sum(_delete_file(Path(parent, name)) for name in names)
    shutil.rmtree(folder)
    return freed


def _delete_file(path: Path) -> int:
    """Delete a file, which may be missing; returns the bytes that the disk has back."""
    try:
        status = path.lstat()
        path.unlink()
    except FileNotFoundError:
        return 0
    return status.st_blocks * BLOCK_BYTES if status.st_nlink == 1 else 0
