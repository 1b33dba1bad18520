"""Gets queued rollouts for this process's callers of ``dequeue_rollout``, by requests through Kafka.

A request is a ``TaskRequest`` in one partition of ``rollout-events``: "start up to n rollouts of that run, for these n
callers". The stream processor that owns the partition (the *life cycle*) answers in the same partition of ``rollouts``.
There it also publishes how many rollouts of each run wait, and their places in the queue (the *summary*).

Invariants:

- The life cycle alone decides who gets a rollout, so no rollout goes to two callers, however many processes ask.
- A request asks for as many rollouts as callers wait at that moment, never for more: no process hoards.
- The callers of one run wait in one line, and those that take any run in another: nobody waits behind callers of a
  different run.
- A partition is asked only while its summary shows more waiting rollouts than this process has requested there and not
  got yet.
- Places are comparable over partitions, so the oldest rollouts of the whole topic are asked for first. A line's first
  request waits up to :data:`PATIENCE_S` for the summaries of all partitions; after that, unknown ones are left out.
- Every caller ends: with a rollout, with none after its deadline, or with the error of a request that failed.
- A rollout that was started for a caller who has left goes back into the queue (``requeue``).
"""

from __future__ import annotations

import asyncio
import heapq
import random
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial

from lightstream.runtime.clock import NANOS_PER_SECOND, Clock
from lightstream.runtime.kafka import Place, Position, Publisher, QueueSummary
from lightstream.schemas.errors import LightstreamError, ServiceUnavailableError
from lightstream.schemas.records import ANY_RUN, WORKERS_PER_REQUEST_MAX, RolloutState, TaskRequest
from lightstream.schemas.topics import ROLLOUT_EVENTS

from ..condition import Condition

PATIENCE_S = 1.0
"""Partitions whose queue is unknown (their worker is starting) hold up the others for so long."""

ANSWER_MARGIN_S = 5.0
"""Between the time after which a request is void and giving up on its answer: clocks drift, and answers travel."""

MISS_DELAY_S = 0.002
MISS_DELAY_S_MAX = 0.1
"""A store that asked in vain, because others were quicker, waits a random time up to this before it asks again: doubled
for each miss in a row."""


@dataclass(eq=False, slots=True)
class LeaseRequest:
    """One caller's request for one rollout.

    Attributes:
        deadline_s: monotonic seconds; after it, a request that brings nothing is not followed by another.
        run_id: run whose rollouts it is about; ``*``: any.
        future: the state that starts the attempt, or ``None`` when nothing waited.
    """

    worker_id: str
    deadline_s: float
    run_id: str = ANY_RUN
    future: asyncio.Future[RolloutState | None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


@dataclass(slots=True)
class _Sent:
    """A request to the life cycle, until it is answered."""

    line: _Line
    partition: int
    leases: list[LeaseRequest]
    timer: asyncio.TimerHandle | None = None
    states: list[RolloutState] = field(default_factory=list)


@dataclass(slots=True)
class _Line:
    """Callers that wait for rollouts of one run (or of any), and what is known of the queue of that run."""

    run_id: str
    queues: dict[int, QueueSummary | None]
    waiting: deque[LeaseRequest] = field(default_factory=deque[LeaseRequest])
    requested: Counter[int] = field(default_factory=Counter[int])
    misses: int = 0
    not_before_s: float = 0.0
    is_put_off: bool = False
    since_s: float = field(default_factory=time.monotonic)
    ready: asyncio.Event = field(default_factory=asyncio.Event)

    def partitions_in_order(self, needed: int) -> list[int]:
        """The partitions of the first ``needed`` rollouts of all queues, in order; fewer where fewer wait."""
        remaining: Counter[int] = Counter()
        heads: list[list[tuple[Place, int]]] = []
        for partition, queue in self.queues.items():
            if queue is not None:
                requested = self.requested[partition]
                remaining[partition] = max(0, queue.waiting - requested)
                heads.append([(place, partition) for place in queue.head[requested:]])
        order = [partition for _, partition in heapq.merge(*heads)][:needed]
        remaining.subtract(order)
        for partition, waiting in remaining.items():  # behind the heads, in any order
            order.extend([partition] * min(waiting, needed - len(order)))
        return order

    def count(self, sent: _Sent, missed: Sequence[LeaseRequest]) -> None:
        """A request was answered, and these got nothing."""
        if sent.states or not sent.leases:
            self.misses = 0
            self.not_before_s = 0.0
        elif missed:
            self.misses += 1
            delay_s = min(MISS_DELAY_S_MAX, MISS_DELAY_S * 2**self.misses)
            self.not_before_s = time.monotonic() + random.random() * delay_s  # noqa: S311  # no secret


class Dispatcher:
    """Collects callers (:meth:`add`), sends requests (:meth:`flush`), hands out answers (:meth:`on_answer`).

    Belongs to one event loop; no method blocks. :class:`~.tail.LogTail` calls :meth:`on_queues` and :meth:`on_answer`
    with what it reads.

    Args:
        partitions: of ``rollout-events``.
        answer_timeout_s: how long a request stands.
        requeue: called with a start that nobody waits for any more.
        post: calls something in the loop, from any thread.
    """

    def __init__(
        self,
        publisher: Publisher,
        clock: Clock,
        partitions: Iterable[int],
        *,
        answer_timeout_s: float,
        requeue: Callable[[RolloutState], None],
        post: Callable[[Callable[[], None]], None],
    ) -> None:
        self._publisher = publisher
        self._clock = clock
        self._answer_timeout_s = answer_timeout_s
        self._requeue = requeue
        self._post = post
        self._partitions = tuple(partitions)
        self._lines: dict[str, _Line] = {}
        self._sent: dict[str, _Sent] = {}
        self._answered = Condition()
        self._ended: Exception | None = None

    async def ready(self, run_id: str = ANY_RUN) -> None:
        """Return once the waiting rollouts of that run are known in each partition, or after :data:`PATIENCE_S`.

        Asks every partition, the first time. Answers have to be passed on to here from then on.
        """
        if run_id not in self._lines:
            self._line(run_id)
            self.flush()
            asyncio.get_running_loop().call_later(PATIENCE_S, self.flush)
        await self._lines[run_id].ready.wait()

    def add(self, leases: Sequence[LeaseRequest]) -> None:
        """Get work for these callers with the next :meth:`flush`; the first callers get the first rollouts in the
        queue."""
        if self._ended is not None:
            _fail(leases, self._ended)
            return
        for lease in leases:
            self._line(lease.run_id).waiting.append(lease)

    def flush(self) -> None:
        """Write the requests that make sense now."""
        if self._ended is None:
            for line in self._lines.values():
                self._flush_line(line, time.monotonic())

    def cancel(self, lease: LeaseRequest) -> bool:
        """Whether it could be taken back: nothing has been asked for it (any more), and nothing will be."""
        line = self._lines.get(lease.run_id)
        if line is None or lease not in line.waiting:  # remove() costs 20 times as much: its error shows the request
            return False
        line.waiting.remove(lease)
        return True

    def on_queues(self, partition: int, queues: Mapping[str, QueueSummary]) -> None:
        """The queues of a partition as they are now, by run."""
        needed = False
        for run_id, queue in queues.items():
            if (line := self._lines.get(run_id)) is not None:
                line.queues[partition] = queue
                needed = needed or bool(line.waiting) or not line.ready.is_set()
        if needed:
            self.flush()

    def on_answer(self, request_id: str, state: RolloutState | None, still_to_come: int) -> None:
        """One record of the answer to a request of ours, or of somebody else's."""
        sent = self._sent.get(request_id)
        if sent is None:
            return
        if state is not None:
            sent.states.append(state)
        if still_to_come:
            return
        self._take_off(request_id)
        missed = [lease for lease in sent.leases[len(sent.states) :] if not lease.future.cancelled()]
        sent.line.count(sent, missed)
        now_s = time.monotonic()
        for lease, got in zip(sent.leases, sent.states, strict=False):
            if not _resolve(lease, got):
                self._requeue(got)
        sent.line.waiting.extendleft(lease for lease in reversed(missed) if lease.deadline_s > now_s)
        for lease in missed:
            if lease.deadline_s <= now_s:
                _resolve(lease, None)
        self._answered.notify()
        self.flush()

    def knows(self, request_id: str) -> bool:
        """Whether the answer to that request is awaited here."""
        return request_id in self._sent

    async def close(self, timeout_s: float) -> None:
        """Request nothing more, and put back into the queue all that still comes within ``timeout_s`` seconds.

        Callers that wait fail, and those that come later. What comes after ``timeout_s`` counts as unresponsive in the
        end, and is dispatched again if its retries allow.
        """
        self._ended = error = ServiceUnavailableError("the store was closed before the answer came.")
        waiting = [lease for line in self._lines.values() for lease in line.waiting]
        waiting += [lease for sent in self._sent.values() for lease in sent.leases]
        for line in self._lines.values():
            line.waiting.clear()
            line.ready.set()
        _fail(waiting, error)
        await self._answered.wait_for(lambda: not any(sent.leases for sent in self._sent.values()), timeout_s)

    def fail(self, error: Exception) -> None:
        """No answer will come any more: ``error`` says why."""
        self._ended = self._ended or error
        for request_id in list(self._sent):
            _fail(self._take_off(request_id).leases, error)
        for line in self._lines.values():
            _fail(line.waiting, error)
            line.waiting.clear()
            line.ready.set()
        self._answered.notify()

    def _line(self, run_id: str) -> _Line:
        line = self._lines.get(run_id)
        if line is None:
            line = self._lines[run_id] = _Line(run_id, dict.fromkeys(self._partitions))
            if self._ended is not None:
                line.ready.set()
        return line

    def _flush_line(self, line: _Line, now_s: float) -> None:
        unknown = [partition for partition, queue in line.queues.items() if queue is None]
        for partition in unknown:
            pending = (sent for sent in self._sent.values() if sent.line is line and sent.partition == partition)
            if all(sent.leases for sent in pending):
                self._send(line, partition, [])
        if unknown and now_s - line.since_s < PATIENCE_S:
            return
        line.ready.set()
        if line.waiting and now_s < line.not_before_s:
            self._put_off(line, line.not_before_s - now_s)
        elif line.waiting:
            shares: dict[int, list[LeaseRequest]] = {}
            for partition in line.partitions_in_order(len(line.waiting)):
                shares.setdefault(partition, []).append(line.waiting.popleft())
            for partition, leases in shares.items():
                for start in range(0, len(leases), WORKERS_PER_REQUEST_MAX):
                    self._send(line, partition, leases[start : start + WORKERS_PER_REQUEST_MAX])

    def _put_off(self, line: _Line, delay_s: float) -> None:
        def again() -> None:
            line.is_put_off = False
            self.flush()

        if not line.is_put_off:
            line.is_put_off = True
            asyncio.get_running_loop().call_later(delay_s, again)

    def _send(self, line: _Line, partition: int, leases: list[LeaseRequest]) -> None:
        request_id = uuid.uuid4().hex
        record = TaskRequest(
            request_id=request_id,
            worker_ids=[lease.worker_id for lease in leases],
            occurred_unix_nano=self._clock.now_unix_nano(),
            stands_nanos=int(self._answer_timeout_s * NANOS_PER_SECOND),
            run_id=line.run_id,
        )
        line.requested[partition] += len(leases)
        self._sent[request_id] = _Sent(line, partition, leases)
        try:
            written = self._publisher.publish(ROLLOUT_EVENTS, request_id, record, partition=partition)
        except LightstreamError as error:
            self._on_lost(request_id, error)
            return
        written.add_done_callback(lambda done: self._post(partial(self._on_written, request_id, done)))

    def _on_written(self, request_id: str, done: Future[Position]) -> None:
        """It stands from now on."""
        sent, error = self._sent.get(request_id), done.exception()
        if error is not None:
            self._on_lost(request_id, error)
        elif sent is not None:  # else it is answered
            wait_s = self._answer_timeout_s + ANSWER_MARGIN_S
            sent.timer = asyncio.get_running_loop().call_later(wait_s, self._give_up, request_id)

    def _on_lost(self, request_id: str, error: BaseException) -> None:
        if request_id in self._sent:
            _fail(self._take_off(request_id).leases, error)

    def _give_up(self, request_id: str) -> None:
        if request_id not in self._sent:
            return
        sent = self._take_off(request_id)
        if not sent.leases:
            sent.line.queues[sent.partition] = None
        _fail(
            sent.leases,
            ServiceUnavailableError(
                f"the worker did not answer a request for work within {self._answer_timeout_s:g} s.",
                next_step="Is the worker running? `lightstream status` shows it; `lightstream worker` starts it.",
            ),
        )
        self.flush()

    def _take_off(self, request_id: str) -> _Sent:
        sent = self._sent.pop(request_id)
        sent.line.requested[sent.partition] -= len(sent.leases)
        if sent.timer is not None:
            sent.timer.cancel()
        return sent


def _resolve(lease: LeaseRequest, state: RolloutState | None) -> bool:
    """Whether somebody still waited for it."""
    if lease.future.done():
        return False
    lease.future.set_result(state)
    return True


def _fail(leases: Iterable[LeaseRequest], error: BaseException) -> None:
    for lease in leases:
        if not lease.future.done():
            lease.future.set_exception(error)
            lease.future.exception()  # looked at: where nobody waits any more, it is no error
