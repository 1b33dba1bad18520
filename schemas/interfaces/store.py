"""The store's contract: all that Runners, trainers and users need from the control plane.

Names, arguments and meaning are those of Agent Lightning's ``LightningStore`` (0.3). What goes beyond it are
keyword-only arguments with defaults, and the methods ``start``, ``close``, ``heartbeat``, ``cancel_rollout``,
``positions`` and ``see``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack

from ..attribute_names import AGL_ATTEMPT_ID, AGL_ROLLOUT_ID, AGL_SPAN_SEQUENCE_ID
from ..records import ANY_RUN, WorkerHeartbeat
from ..types import (
    UNSET,
    Assembly,
    Attempt,
    AttemptedRollout,
    AttemptStatus,
    EnqueueRolloutRequest,
    LightningStoreCapabilities,
    LightningStoreStatistics,
    LogPositions,
    NamedResources,
    PaginatedResult,
    ResourcesUpdate,
    Rollout,
    RolloutConfig,
    RolloutMode,
    RolloutStatus,
    Span,
    TaskInput,
    Unset,
    Worker,
)
from .queries import AttemptFilters, ResourcesFilters, RolloutFilters, SpanFilters, WorkerFilters, takes

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan


class LightningStore:
    """The control plane. Returned objects are snapshots of the caller's own.

    Threads and tasks. Any number of them may use one of our stores at once. Of other implementations
    :attr:`capabilities` tells: this class, which keeps nothing, promises neither.

    Writes. A write returns once it is durable and the life cycle has answered it. One that raises has changed nothing,
    but for two cases. A call that writes several things is checked as a whole before anything is written; what only
    the life cycle can tell (an id that does not exist, say) concerns one of them, and the others may have taken effect
    (the methods say what remains). And where a process fails or the store is closed in the middle
    (:class:`ServiceUnavailableError`, :class:`PublishError`), what was durable by then takes effect. Ask the store how
    things stand before you write again, unless the same call twice is the same as once.

    Raises:
        StoreError: a call of any method cannot be done (a ``ValueError``); :class:`NotFoundError` where an id does not
            exist.
        ServiceUnavailableError: a process that is needed does not answer, or the store was closed before the answer
            came.
        PublishError: a write did not become durable.
        NotImplementedError: this store does not have the method.

    Queries. ``filter_logic`` joins the filters given, by default all must match; those left out do not count.
    ``sort_by`` names a text or number field of what is returned; items without a value sort as the least, times as the
    latest. Without it the order is that of insertion. ``limit`` is -1 for all, ``offset`` counts from the first match.

    Waits. ``timeout_s`` is a number of seconds, 0 to look once; infinity waits for ever, ``None`` is refused.
    """

    async def start(self) -> None:
        """Connect. Call once, before anything else."""

    async def close(self) -> None:
        """Release connections and threads. Every write that has returned is durable.

        A caller that still waits for the result of a write, or for work, gets a :class:`ServiceUnavailableError`; the
        write may take effect all the same. A caller that waits for rollouts to end, or for resources, gets those that
        are known by now; over HTTP, where only the server knows, it gets this error too.
        """

    # --- about the store

    @property
    def capabilities(self) -> LightningStoreCapabilities:
        """Capabilities of this store."""
        return LightningStoreCapabilities(thread_safe=False, async_safe=False, zero_copy=False, otlp_traces=False)

    async def statistics(self) -> LightningStoreStatistics:
        """Sizes of this store."""
        return LightningStoreStatistics(name=type(self).__name__)

    def positions(self) -> LogPositions:
        """Offsets up to which this store has reported the log to anyone. For :meth:`see`, in any process."""
        return LogPositions()

    def see(self, positions: LogPositions) -> None:
        """From now on, reads here reflect these positions of another store on the same log, too.

        Positions of another log are ignored. A store that is all in memory has nothing to do. One that reads the log
        may ask Kafka first, for some milliseconds.

        Raises:
            StoreError: the log does not go so far; nothing is taken over.
        """

    def otlp_traces_endpoint(self) -> str:
        """URL that takes OTLP/HTTP traces (``…/v1/traces``), rollout and attempt named in the resource."""
        raise NotImplementedError

    # --- rollouts

    async def start_rollout(
        self,
        input: TaskInput,  # noqa: A002  # the interface's name
        mode: RolloutMode | None = None,
        resources_id: str | None = None,
        config: RolloutConfig | None = None,
        metadata: dict[str, Any] | None = None,
        worker_id: str | None = None,
        *,
        rollout_id: str | None = None,
        run_id: str | None = None,
        group_id: str | None = None,
        group_size: int | None = None,
        assembly: Assembly | None = None,
    ) -> AttemptedRollout:
        """Create a rollout and its first attempt together, both ``preparing``, without the queue.

        A ``resources_id`` of ``None`` means the latest. With ``rollout_id``, an id that exists already is
        refused.
        """
        raise NotImplementedError

    async def enqueue_rollout(
        self,
        input: TaskInput,  # noqa: A002  # the interface's name
        mode: RolloutMode | None = None,
        resources_id: str | None = None,
        config: RolloutConfig | None = None,
        metadata: dict[str, Any] | None = None,
        *,
        rollout_id: str | None = None,
        run_id: str | None = None,
        group_id: str | None = None,
        group_size: int | None = None,
        assembly: Assembly | None = None,
    ) -> Rollout:
        """Put one rollout at the end of the queue; see :meth:`enqueue_many_rollouts`."""
        request = EnqueueRolloutRequest(
            input=input,
            mode=mode,
            resources_id=resources_id,
            config=config,
            metadata=metadata,
            rollout_id=rollout_id,
            run_id=run_id,
            group_id=group_id,
            group_size=group_size,
            assembly=assembly,
        )
        return (await self.enqueue_many_rollouts([request]))[0]

    async def enqueue_many_rollouts(self, rollouts: Sequence[EnqueueRolloutRequest]) -> Sequence[Rollout]:
        """Put rollouts in the queue, in this order. A ``resources_id`` of ``None`` means the latest.

        A request whose ``rollout_id`` exists already returns that rollout, unchanged: a retry creates no second one.

        All or none: a request that no rollout can have, or that no record can hold, is found before any is enqueued.
        Only a service that fails in the middle may leave some enqueued, and a life cycle whose settings allow less than
        this store's, which refuses what it must and enqueues the others: they lie in different partitions, and are the
        same rollouts when they are asked for again by their ids.
        """
        raise NotImplementedError

    async def dequeue_rollout(
        self, worker_id: str | None = None, *, timeout_s: float = 0.0, run_id: str = ANY_RUN
    ) -> AttemptedRollout | None:
        """Take the rollout that is first in the queue and create an attempt for it, ``preparing``.

        Only rollouts of ``run_id`` are taken: of any run by default (``*``), and with an empty one those that belong
        to no run. The queue goes by priority (``config.priority``, the highest first), then retries before first
        attempts, then age.

        Returns ``None`` if none came within ``timeout_s`` seconds. An attempt that is returned is this caller's:
        no other has it, and its opening record precedes every span it will make.
        """
        rollouts = await self.dequeue_many_rollouts(limit=1, worker_id=worker_id, timeout_s=timeout_s, run_id=run_id)
        return rollouts[0] if rollouts else None

    async def dequeue_many_rollouts(
        self, *, limit: int = 1, worker_id: str | None = None, timeout_s: float = 0.0, run_id: str = ANY_RUN
    ) -> Sequence[AttemptedRollout]:
        """As :meth:`dequeue_rollout`, up to ``limit`` of them. Waits for the first only."""
        raise NotImplementedError

    async def start_attempt(self, rollout_id: str, worker_id: str | None = None) -> AttemptedRollout:
        """Start one more attempt of a rollout, whatever its policy says; one that was over is not over any more.

        It supersedes an open one, which no longer decides about the rollout.
        """
        raise NotImplementedError

    @takes(RolloutFilters)
    async def query_rollouts(self, **query: Unpack[RolloutFilters]) -> PaginatedResult[Rollout]:
        """Rollouts, with their latest attempt where there is one (:class:`AttemptedRollout`)."""
        raise NotImplementedError

    async def get_rollout_by_id(self, rollout_id: str) -> Rollout | None:
        """A rollout, with its latest attempt where there is one; ``None`` if it does not exist."""
        raise NotImplementedError

    async def wait_for_rollouts(
        self,
        *,
        rollout_ids: Sequence[str],
        timeout: float | None = None,  # noqa: ASYNC109  # the interface's name
        count: int | None = None,
        share: float | None = None,
    ) -> list[Rollout]:
        """Wait until rollouts are over; returns the finished ones, in the order given.

        Args:
            rollout_ids: which to wait for. Ids that do not exist are left out at once.
            timeout: seconds; ``None`` waits forever. After that, the finished ones are returned.
            count: stop once this many are over; by default all.
            share: stop once this share of them is over, above 0 and at most 1.
        """
        raise NotImplementedError

    async def update_rollout(
        self,
        rollout_id: str,
        input: TaskInput | Unset = UNSET,  # noqa: A002  # the interface's name
        mode: RolloutMode | Unset | None = UNSET,
        resources_id: str | Unset | None = UNSET,
        status: RolloutStatus | Unset = UNSET,
        config: RolloutConfig | Unset = UNSET,
        metadata: dict[str, Any] | Unset | None = UNSET,
        *,
        if_attempt: str | None = None,
    ) -> Rollout:
        """Replace the given fields; with ``if_attempt`` only while that is the id of the open attempt.

        A status of ``queuing`` or ``requeuing`` puts the rollout in the queue, once. Its open attempt stays open, and
        whichever comes first goes on: the next attempt, which supersedes it, or this one, of which a span or a new
        status takes the rollout out of the queue again. ``succeeded``, ``failed`` and ``cancelled`` end rollout and
        attempt.

        A finished rollout may go back into the queue; any other status but its own is refused. One more attempt
        follows, whatever its retries, and that trajectory counts in place of the former one. What was trained on
        stays so.
        """
        raise NotImplementedError

    async def cancel_rollout(self, rollout_id: str, reason: str = "") -> Rollout:
        """Cancel a rollout, and with it its open attempt. One that is over is returned as it is."""
        raise NotImplementedError

    # --- attempts

    @takes(AttemptFilters)
    async def query_attempts(self, rollout_id: str, **query: Unpack[AttemptFilters]) -> PaginatedResult[Attempt]:
        """A rollout's attempts; none for a rollout that does not exist."""
        raise NotImplementedError

    async def get_latest_attempt(self, rollout_id: str) -> Attempt | None:
        """The attempt with the highest ``sequence_id``, or ``None``."""
        raise NotImplementedError

    async def update_attempt(
        self,
        rollout_id: str,
        attempt_id: str | Literal["latest"],
        status: AttemptStatus | Unset = UNSET,
        worker_id: str | Unset = UNSET,
        last_heartbeat_time: float | Unset = UNSET,
        metadata: dict[str, Any] | Unset | None = UNSET,
        *,
        error_type: str | None = None,
        error_message: str | None = None,
    ) -> Attempt:
        """Replace the given fields. The status of the latest attempt decides that of its rollout, retries included.

        A status for an attempt that is over, or whose rollout is, comes too late: it is recorded in the log, changes
        nothing, and the attempt is returned as it is. All spans of an attempt must be durable before it is ended.

        Args:
            last_heartbeat_time: last sign of life; without it, this call is one: it puts off the time at which the
                attempt is unresponsive. (One that is so already comes back by a heartbeat, a span or a new status.) A
                time in the past counts as such if the rollout names its ``unresponsive_seconds``: the attempt is
                unresponsive once those are over, which may be at once. A time in the future counts as now.
            error_type, error_message: why it failed.
        """
        raise NotImplementedError

    async def heartbeat(self, worker: WorkerHeartbeat, attempts: Sequence[tuple[str, str]]) -> None:
        """Say that a worker is alive, and so are its attempts, each (rollout_id, attempt_id)."""
        raise NotImplementedError

    # --- spans

    async def add_span(self, span: Span) -> Span | None:
        """Keep a span; a sign of life of its attempt. Returns ``None`` if the attempt has a span of that id already."""
        return next(iter(await self.add_many_spans([span])), None)

    async def add_many_spans(self, spans: Sequence[Span]) -> Sequence[Span]:
        """As :meth:`add_span`, for many. Returns those that were new.

        All or none: where one names a rollout or attempt that does not exist, nothing is kept; the other attempts have
        given a sign of life by then. Only a service that fails in the middle may leave some kept.
        """
        raise NotImplementedError

    async def add_otel_span(
        self, rollout_id: str, attempt_id: str, readable_span: ReadableSpan, sequence_id: int | None = None
    ) -> Span | None:
        """As :meth:`add_span`, for a span of the OpenTelemetry SDK. Without ``sequence_id`` it gets the next one.

        All three are kept in its resource too, as an exporter of the attempt's own process sends them.
        """
        if sequence_id is None:
            sequence_id = await self.get_next_span_sequence_id(rollout_id, attempt_id)
        span = Span.from_opentelemetry(readable_span, rollout_id, attempt_id, sequence_id)
        span.resource.attributes |= {
            AGL_ROLLOUT_ID: rollout_id,
            AGL_ATTEMPT_ID: attempt_id,
            AGL_SPAN_SEQUENCE_ID: sequence_id,
        }
        return await self.add_span(span)

    @takes(SpanFilters)
    async def query_spans(
        self, rollout_id: str, attempt_id: str | Literal["latest"] | None = None, **query: Unpack[SpanFilters]
    ) -> PaginatedResult[Span]:
        """A rollout's spans, of one attempt or of all; none for one that does not exist."""
        raise NotImplementedError

    async def get_next_span_sequence_id(self, rollout_id: str, attempt_id: str) -> int:
        """The next number for a span of this rollout: 1, 2, … and above every number that a span brought along."""
        return (await self.get_many_span_sequence_ids([(rollout_id, attempt_id)]))[0]

    async def get_many_span_sequence_ids(self, rollout_attempt_ids: Sequence[tuple[str, str]]) -> Sequence[int]:
        """As :meth:`get_next_span_sequence_id`, one for each (rollout_id, attempt_id), in order.

        Where one rollout does not exist, those of the others are taken, and remain unused.
        """
        raise NotImplementedError

    # --- resources

    async def add_resources(self, resources: NamedResources) -> ResourcesUpdate:
        """Store resources under a new id; they become the latest."""
        raise NotImplementedError

    async def update_resources(self, resources_id: str, resources: NamedResources) -> ResourcesUpdate:
        """Store resources under this id, replacing any; they become the latest.

        Each call makes a version of its own, the next number after those that were told before, even if several
        processes do it at once.
        """
        raise NotImplementedError

    @takes(ResourcesFilters)
    async def query_resources(self, **query: Unpack[ResourcesFilters]) -> PaginatedResult[ResourcesUpdate]:
        """All resources, each id once."""
        raise NotImplementedError

    async def get_resources_by_id(self, resources_id: str, *, timeout_s: float = 0.0) -> ResourcesUpdate | None:
        """Resources by id, or ``None``. Waits up to ``timeout_s`` seconds for them to appear."""
        raise NotImplementedError

    async def get_latest_resources(self, *, timeout_s: float = 0.0) -> ResourcesUpdate | None:
        """The resources stored last, or ``None``. Never older than what this store has returned before."""
        raise NotImplementedError

    # --- workers

    @takes(WorkerFilters)
    async def query_workers(self, **query: Unpack[WorkerFilters]) -> PaginatedResult[Worker]:
        """Every worker that has ever reported."""
        raise NotImplementedError

    async def get_worker_by_id(self, worker_id: str) -> Worker | None:
        """One worker, or ``None``."""
        raise NotImplementedError

    async def update_worker(self, worker_id: str, heartbeat_stats: dict[str, Any] | Unset | None = UNSET) -> Worker:
        """A worker's sign of life, with its own report; without figures (``None`` too) it keeps earlier ones.

        What it is busy with follows from other calls.
        """
        raise NotImplementedError
