"""All rollouts of one partition: the life cycle's state in memory, and how it comes back after a crash."""

from __future__ import annotations

from typing import Protocol

from lightstream.runtime.clock import Clock
from lightstream.schemas.codec import Codec
from lightstream.schemas.errors import RecordError, UnknownSchemaError
from lightstream.schemas.records import ANY_RUN, EventKind, RolloutEvent, RolloutState, RolloutStatus, TaskRequest

from .deadlines import SIGNS_OF_LIFE, Deadlines
from .fold import Transition, fold
from .limits import Limits
from .queue import QueueEntry, WaitingRollouts


class FinishedRollouts(Protocol):
    """States of finished rollouts, as their Avro bytes."""

    def get(self, rollout_id: str) -> bytes | None:
        """The last state that was put, or ``None``."""
        ...

    def put(self, rollout_id: str, source_offset: int, state: bytes) -> None:
        """Keep a state, which reflects the events up to ``source_offset``, in place of any that reflects fewer."""
        ...


class FinishedInMemory:
    """All of them in memory, about half a kilobyte each."""

    def __init__(self) -> None:
        self._states: dict[str, tuple[int, bytes]] = {}

    def get(self, rollout_id: str) -> bytes | None:
        kept = self._states.get(rollout_id)
        return None if kept is None else kept[1]

    def put(self, rollout_id: str, source_offset: int, state: bytes) -> None:
        kept = self._states.get(rollout_id)
        if kept is None or kept[0] < source_offset:
            self._states[rollout_id] = source_offset, state


ID_CHARACTERS_MAX = 1024
"""Event, attempt and worker ids: they are kept in every state record."""

ROLLOUT_ID_CHARACTERS_MAX = 256

REQUEST_ID_CHARACTERS = 16
"""Of a request's id, in the ids of the attempts that it started."""


class LifecyclePartition:
    """The life cycle of one partition of ``rollout-events``. Not thread-safe.

    Recovery: :meth:`restore` every state of the same partition of ``rollouts``, say that they are :meth:`restored`,
    then feed the events from any offset at or below the last state's; events that a state reflects are skipped. Effects
    are durable before the state that implies them, so a restored state needs none again: what a crash left undone
    comes with the replay of its event.
    States become durable in the order in which they were made, so those that are form a beginning of all: of the
    requests for work, at most the last one that they reflect may be answered in part. Finished rollouts that
    ``finished`` has need not be restored, if ``reflected`` says how far in ``rollout-events`` their states go.

    Memory: open rollouts as they are, finished ones wherever ``finished`` keeps them.
    """

    def __init__(
        self, limits: Limits, clock: Clock, codec: Codec, finished: FinishedRollouts | None = None, reflected: int = -1
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._codec = codec
        self._open: dict[str, RolloutState] = {}
        self._finished = FinishedInMemory() if finished is None else finished
        self._deadlines = Deadlines(limits)
        self._sure: list[RolloutEvent] = []
        self._waiting = WaitingRollouts()
        self._reflected = reflected
        self._reflected_states = 0
        self._unread: dict[str, tuple[int, bytes, str | None]] = {}

    def restore(
        self, rollout_id: str, source_offset: int, status: RolloutStatus, encoded: bytes, writer: str | None = None
    ) -> None:
        """Take over a state from ``rollouts``; of several for one rollout the one with the highest source offset.

        Its kind is in a header (``state``), so that most need not be read further; ``writer`` is in another.
        """
        self._count(source_offset)
        if status is RolloutStatus.UNKNOWN:
            return  # an answer about a rollout that does not exist
        before = self._unread.get(rollout_id)
        if before is not None and before[0] >= source_offset:
            return
        if status.is_terminal:
            self._unread.pop(rollout_id, None)
            self._finished.put(rollout_id, source_offset, encoded)
        else:
            self._unread[rollout_id] = (source_offset, encoded, writer)

    def restored(self) -> dict[str, UnknownSchemaError]:
        """All states are there: read the open rollouts' states, unless they had finished later.

        Returns:
            Why some could not be read, by rollout: nothing is known of these, and no event of theirs may be given.
        """
        unknown: dict[str, UnknownSchemaError] = {}
        for rollout_id, (source_offset, encoded, writer) in self._unread.items():
            try:
                finished = self.state_of(rollout_id)
                if finished is not None and finished.source_offset >= source_offset:
                    continue
                state = self._codec.decode(encoded, writer)
            except UnknownSchemaError as error:
                unknown[rollout_id] = error
                continue
            if isinstance(state, RolloutState):
                self._keep(state)
        self._unread.clear()
        return unknown

    def hold(self, rollout_id: str) -> None:
        """Leave this rollout as it is, since an event of it cannot be read: it is not dispatched, and nothing is due.

        A state that reflected a later event would have that one skipped for ever.
        """
        if (state := self._open.get(rollout_id)) is not None:
            ended = state.model_copy(update={"status": RolloutStatus.CANCELLED})
            self._waiting.update(ended)
            self._deadlines.update(ended, self._clock.now_unix_nano())

    def on_event(self, event: RolloutEvent, offset: int, logged_unix_nano: int | None = None) -> Transition | None:
        """Fold the event at ``offset``. ``None``: a state already reflects it, nothing is to be done.

        Args:
            logged_unix_nano: when it was written, by the log's clock; ``None`` if the log has none but the event's.

        Raises:
            RecordError: an id is empty or too long; nothing changed.
            UnknownSchemaError: another version wrote the rollout's state; nothing changed.
        """
        if broken := broken_id(event):
            raise RecordError(broken)
        state = self.state_of(event.rollout_id)
        if state is not None and offset <= state.source_offset:
            return None
        if event.kind is EventKind.SUSPECTED:
            if self._deadlines.is_silent_since(event):
                self._sure.append(event.model_copy(update={"kind": EventKind.UNRESPONSIVE}))
            return None
        return self._fold(state, event, offset, logged_unix_nano)

    def on_request(
        self, request: TaskRequest, offset: int, logged_unix_nano: int | None = None
    ) -> list[Transition] | None:
        """Dispatch the first rollouts in the queue of the run that is asked for, one attempt per worker that asks.

        Args:
            logged_unix_nano: as for :meth:`on_event`.

        Returns:
            The starts, at most as many as were asked for, and none by a request that is void. (It may have stood
            before a crash: what it opened then gives way to what begins in its place, see ``Assembler``.) ``None``
            where the whole answer is durable already.
        """
        if offset < self._reflected:
            return None
        answered = self._reflected_states if offset == self._reflected else 0
        logged = request.occurred_unix_nano if logged_unix_nano is None else logged_unix_nano
        if self._clock.now_unix_nano() - logged > request.stands_nanos:
            return []
        starts: list[Transition] = []
        for number, worker_id in enumerate(request.worker_ids):
            rollout_id = self._waiting.first(request.run_id)
            if number < answered:
                continue
            if rollout_id is None:
                break
            state = self.state_of(rollout_id)
            if state is None:
                raise AssertionError(f"{rollout_id} waits, but is not known")
            starts.append(self._fold(state, _start(state, request, worker_id), offset, logged_unix_nano))
        return starts

    def queue_length(self, run_id: str = ANY_RUN) -> int:
        """Number of rollouts of that run that wait."""
        return self._waiting.length(run_id)

    def queue_head(self, count: int, run_id: str = ANY_RUN) -> list[QueueEntry]:
        """The first ``count`` entries of that run's queue."""
        return self._waiting.head(count, run_id)

    def queues_changed(self) -> list[str]:
        """The runs whose queues have changed since they were noted, the latest first; all that wait after a restart."""
        return self._waiting.changed()

    def queue_noted(self, run_id: str) -> None:
        """The queue of that run has been reported."""
        self._waiting.noted(run_id)

    def _fold(
        self, state: RolloutState | None, event: RolloutEvent, offset: int, logged_unix_nano: int | None
    ) -> Transition:
        transition = fold(state, event, offset, self._limits, logged_unix_nano)
        if transition.state is not None and transition.record is not None:
            self._keep(transition.state)
        if transition.action in SIGNS_OF_LIFE:
            self._deadlines.heard(event, self._clock.now_unix_nano())
        return transition

    def due(self) -> list[RolloutEvent]:
        """Events that the passing of time makes, to be written to ``rollout-events``.

        That an attempt is silent is suspected first. When that comes back, all that lay in the log before has been
        folded; if no sign of life was among it, the attempt is ``unresponsive``. So no clock but the log's decides
        what an event does, and it does the same after a crash.
        """
        sure, self._sure = self._sure, []
        due = self._deadlines.due(self._clock.now_unix_nano())
        return sure + [_suspicion(event) if event.kind is EventKind.UNRESPONSIVE else event for event in due]

    def state_of(self, rollout_id: str) -> RolloutState | None:
        """The rollout as it stands, or ``None`` if it was never enqueued."""
        state = self._open.get(rollout_id)
        if state is None and (kept := self._finished.get(rollout_id)) is not None:
            record = self._codec.decode(kept)
            state = record if isinstance(record, RolloutState) else None
        return state

    def _count(self, source_offset: int) -> None:
        if source_offset > self._reflected:
            self._reflected, self._reflected_states = source_offset, 0
        self._reflected_states += source_offset == self._reflected

    def _keep(self, state: RolloutState) -> None:
        rollout_id = state.rollout.rollout_id
        if state.status.is_terminal:
            self._open.pop(rollout_id, None)
            self._finished.put(rollout_id, state.source_offset, self._codec.encode(state))
        else:
            self._open[rollout_id] = state
        self._waiting.update(state)
        self._deadlines.update(state, self._clock.now_unix_nano())


def _suspicion(silence: RolloutEvent) -> RolloutEvent:
    return silence.model_copy(update={"kind": EventKind.SUSPECTED})


def _start(state: RolloutState, request: TaskRequest, worker_id: str) -> RolloutEvent:
    """The event that the next attempt begins, as the request implies it."""
    rollout_id, sequence = state.rollout.rollout_id, len(state.attempts) + 1
    return RolloutEvent(
        event_id=request.request_id,
        kind=EventKind.ATTEMPT_STARTED,
        rollout_id=rollout_id,
        occurred_unix_nano=request.occurred_unix_nano,
        attempt_id=f"{rollout_id}-a{sequence}-{request.request_id[:REQUEST_ID_CHARACTERS]}",
        attempt_sequence=sequence,
        worker_id=worker_id or None,
    )


def broken_id(event: RolloutEvent) -> str:
    """Return the reason for which no state can carry the ids of this event, or an empty string."""
    if not 0 < len(event.rollout_id) <= ROLLOUT_ID_CHARACTERS_MAX:
        return f"rollout_id has {len(event.rollout_id)} characters; 1 to {ROLLOUT_ID_CHARACTERS_MAX} are allowed"
    if not event.event_id:
        return "event_id is empty"
    for name in ("event_id", "attempt_id", "worker_id"):
        value = getattr(event, name)
        if value is not None and len(value) > ID_CHARACTERS_MAX:
            return f"{name} has {len(value):,} characters; at most {ID_CHARACTERS_MAX:,} are allowed"
    return ""
