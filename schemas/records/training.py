"""Resources and the training ledger."""

from __future__ import annotations

from pydantic import Field

from ._base import Record, RecordEnum


class ResourcesRecord(Record):
    """``resources``: a new version of the named resources. Made by trainers and stores, read by stores and
    model servers.
    """

    resources_id: str = Field(min_length=1)
    """Id of this version of the resources."""
    version: int = Field(ge=0)
    """Number of the version; it counts up within a run."""
    run_id: str = ""
    resources: dict[str, str] = Field(default_factory=dict[str, str])
    """The resources, name to JSON (see :mod:`lightstream.schemas.types.resources`)."""
    model: str | None = None
    """Name that the weights are served under (``<base>@<version>``)."""
    checkpoint_url: str | None = None
    """Folder of the weights, which never changes."""
    adapters: dict[str, str] = Field(default_factory=dict[str, str])
    """Of a run with several policies, the adapters that agents are given: the name each is served under
    (``<policy>@<version>``) to its folder. Their model is that of the run's first version."""
    made_with: dict[str, str] = Field(default_factory=dict[str, str])
    """Of the first version of a run, what it is made with (model, algorithm, data set, seed), as JSON: a run that goes
    on must be made with the same."""
    created_unix_nano: int
    """Time at which the version was first written."""
    updated_unix_nano: int | None = None
    """Time at which it was last written again; ``None``: never."""
    write_ids: list[str] = Field(default_factory=list[str])
    """Ids of its last writes, the newest last, so that a write done again is known as the same."""


class PartitionOffset(Record):
    """The next offset to read of a partition."""

    topic: str
    """The topic."""
    partition: int
    """The partition."""
    offset: int
    """Next offset to read."""


class ConsumedTrajectory(Record):
    """A trajectory that a training step consumed. Trained means (rollout, attempt): never twice."""

    rollout_id: str
    attempt_id: str
    revision: int
    """Revision that was trained on."""
    group_id: str
    """Group that it belongs to; a rollout without a group has its own id here."""
    triplet_count: int
    """Number of its calls that entered the batch with a weight; 0 where nothing of it was learned from."""
    not_trained: dict[str, int] = Field(default_factory=dict[str, int])
    """Reasons why the other calls had no weight: reason to number of calls (of trajectories for ``no_calls`` and
    ``group_skipped``)."""


class WindowPosition(Record):
    """A partition of ``trajectories`` at the close of a window."""

    partition: int
    """The partition."""
    offset: int
    """First offset that is not part of this or an earlier window's reading: the records below it decided the window."""
    kept_from: int
    """First offset that a later window still needs."""
    floor_unix_nano: int
    """Time in the log's order at ``kept_from``."""


class TaskRewards(Record):
    """Rewards of the trajectories of one task in a window."""

    task: str
    """Key of the task: by default a hash of the rollouts' input."""
    count: int
    """Number of rewards."""
    total: float
    """Sum of the rewards."""


class LearningWindow(Record):
    """The window of traffic that a learner's step consumed (``lightstream learn``)."""

    number: int
    """Number of the window; of a window by time its start divided by its length."""
    start_unix_nano: int
    """Start, in event time; of a window by count the time of its first trajectory."""
    end_unix_nano: int
    """End, in event time (not part of a window by time); of a window by count the time of its last trajectory."""
    watermark_unix_nano: int
    """Greatest event time in the log when the window closed."""
    closed_at_unix_nano: int
    """Time in the log's order of the record that closed the window."""
    positions: list[WindowPosition] = Field(default_factory=list[WindowPosition])
    """Where each partition was when the window closed."""
    members: int = 0
    """Trajectories that came in time."""
    left_out: dict[str, int] = Field(default_factory=dict[str, int])
    """Trajectories that were not learned from before their calls were looked at: reason to number."""
    tasks: list[TaskRewards] = Field(default_factory=list[TaskRewards])
    """Rewards by task: later windows compare with their mean."""


class StepOutcome(RecordEnum):
    """The effect of a step on the weights.

    ``updated``: it changed them. ``unchanged``: it counts as a step, but none of its groups had a signal (equal
    rewards), so weights and resources are those of before. ``discarded``: nothing of it could be trained on; its
    groups are consumed, and the step of this number is still to be made. ``measured``: no step, but the validation
    after the last one.
    """

    UNKNOWN = "unknown"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    DISCARDED = "discarded"
    MEASURED = "measured"


class TrainingStep(Record):
    """``training-steps``: one optimiser step, committed in the same Kafka transaction as its resources and offsets."""

    trainer_id: str
    run_id: str = ""
    step: int = Field(ge=0)
    steps_planned: int = Field(default=0, ge=0)
    """Number of steps that the run is to have; 0: the algorithm does not say."""
    made_with: dict[str, str] = Field(default_factory=dict[str, str])
    """Settings of the run, as in its first resources."""
    outcome: StepOutcome = StepOutcome.UPDATED
    """``updated``, ``unchanged``, ``discarded`` or ``measured``."""
    cause: str = ""
    """Why rows that could be trained on were not learned from, in words; empty where nothing was the matter."""
    resources_id: str | None = None
    """Version of the resources that the step published."""
    checkpoint_url: str | None = None
    """Folder of the weights after the step."""
    consumed: list[ConsumedTrajectory] = Field(default_factory=list[ConsumedTrajectory])
    skipped_groups: list[str] = Field(default_factory=list[str])
    """Groups that are waited for no longer since the step before, as rollouts of theirs did not come in time; what
    comes of them later is consumed without a weight."""
    settled_below: int = Field(default=0, ge=0)
    """Every group of the steps before this one is consumed or skipped; 0: not said."""
    metrics: dict[str, float] = Field(default_factory=dict[str, float])
    """Metrics of the step, name to value."""
    low_water: list[PartitionOffset] = Field(default_factory=list[PartitionOffset])
    """Next offset to read per partition: every group below it is in some step; consumed groups above it are found in
    the steps themselves."""
    window: LearningWindow | None = None
    """Window of traffic that the step consumed; ``None``: it consumed groups."""
    started_unix_nano: int
    """Time at which the step began."""
    ended_unix_nano: int
    """Time at which the step was done."""
