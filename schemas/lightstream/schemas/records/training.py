"""Resources and the training ledger."""

from __future__ import annotations

from pydantic import Field

from ._base import Record

__all__ = ["ConsumedTrajectory", "PartitionOffset", "ResourcesRecord", "TrainingStep"]


class ResourcesRecord(Record):
    """``resources``: a new version of the named resources. Made by trainers and stores, read by stores and
    model servers.

    ``resources`` maps a name to a resource as JSON (see :mod:`lightstream.schemas.types.resources`).
    ``version`` counts up within ``run_id``; ``checkpoint_url`` is the immutable folder of the weights, ``model`` the
    name they are served under (``<base>@<version>``). ``updated_unix_nano`` is set where the id was written before.
    ``write_ids`` tell the last writes of this id, this one last, so that a write done again is known as the same.
    """

    resources_id: str = Field(min_length=1)
    version: int = Field(ge=0)
    run_id: str = ""
    resources: dict[str, str] = Field(default_factory=dict[str, str])
    model: str | None = None
    checkpoint_url: str | None = None
    created_unix_nano: int
    updated_unix_nano: int | None = None
    write_ids: list[str] = Field(default_factory=list[str])


class PartitionOffset(Record):
    """The next offset to read of a partition."""

    topic: str
    partition: int
    offset: int


class ConsumedTrajectory(Record):
    """A trajectory that a training step consumed. Trained means (rollout, attempt): never twice.

    ``triplet_count`` of its calls entered the batch; 0 where nothing of it could be learned from.
    """

    rollout_id: str
    attempt_id: str
    revision: int
    group_id: str
    triplet_count: int


class TrainingStep(Record):
    """``training-steps``: one optimiser step, committed in the same Kafka transaction as its resources and offsets.

    ``step`` counts up from 1 per ``trainer_id``. ``low_water`` is what was committed for the consumer group: every
    group below it is in some step; consumed groups above it are found in the steps themselves.
    """

    trainer_id: str
    run_id: str = ""
    step: int = Field(ge=1)
    resources_id: str | None = None
    checkpoint_url: str | None = None
    consumed: list[ConsumedTrajectory] = Field(default_factory=list[ConsumedTrajectory])
    metrics: dict[str, float] = Field(default_factory=dict[str, float])
    low_water: list[PartitionOffset] = Field(default_factory=list[PartitionOffset])
    started_unix_nano: int
    ended_unix_nano: int
