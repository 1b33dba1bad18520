"""Checkpoints that a release serves: they stay, however old they are."""

from __future__ import annotations

from lightstream.runtime.releases import ReleaseLog
from lightstream.runtime.settings import Settings
from lightstream.schemas.codec import Codec
from lightstream.schemas.records import ResourcesRecord
from lightstream.schemas.topics import RESOURCES

from .reading import read_topic


def released_checkpoints(settings: Settings, codec: Codec, run_id: str, *, group_id: str) -> set[str]:
    """The addresses of the run's checkpoints that are the stable model, the candidate or the previous one of a release.

    Reads two topics of one partition.

    Raises:
        ServiceUnavailableError: Kafka does not answer.
    """
    states = ReleaseLog(settings).states().values()
    names = {name for state in states for name in (state.stable, state.candidate, state.previous) if name}
    found = set[str]()
    if not names:
        return found
    for _, record in read_topic(settings, RESOURCES, codec, group_id=group_id):
        if not isinstance(record, ResourcesRecord) or record.run_id != run_id:
            continue
        called = {record.model or "", f"{run_id}@{record.version}"}
        if record.checkpoint_url and names & (called | {f"{run_id}/{name}" for name in called}):
            found.add(record.checkpoint_url)
        found.update(folder for name, folder in record.adapters.items() if names & {name, f"{run_id}/{name}"})
    return found
