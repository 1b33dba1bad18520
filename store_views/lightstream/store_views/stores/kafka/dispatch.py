"""Work for whoever waits for it in this process: asks the life cycle, one request for many at a time."""

from __future__ import annotations

import heapq
import math
import random
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from lightstream.runtime.clock import NANOS_PER_SECOND, Clock
from lightstream.runtime.kafka import Place, Position, Publisher, QueueSummary
from lightstream.schemas.errors import LightstreamError, ServiceUnavailableError
from lightstream.schemas.records import ANY_RUN, WORKERS_PER_REQUEST_MAX, RolloutState, TaskRequest
from lightstream.schemas.topics import ROLLOUT_EVENTS

__all__ = ["Dispatch", "Want"]

PATIENCE_S = 1.0
"""How long partitions that do not tell what waits there (their worker is starting) hold up what is known of others."""

ANSWER_MARGIN_S = 5.0
"""Between the time after which a request is void and giving up on its answer: clocks drift, and answers travel."""

NEVER_S = math.inf
"""Until a request is durable: it stands from then on."""

MISS_DELAY_S = 0.002
MISS_DELAY_S_MAX = 0.1
"""Who asked in vain, because others were quicker, waits a random time up to this before asking again: doubled for each
miss in a row."""


@dataclass(eq=False, slots=True)
class Want:
    """One caller's wish for one rollout.

    Attributes:
        deadline_s: monotonic seconds; after it, a request that brings nothing is not followed by another.
        run_id: run whose rollouts it is about; ``*``: any.
        future: the state that starts the attempt, or ``None`` when nothing waited.
    """

    worker_id: str
    deadline_s: float
    run_id: str = ANY_RUN
    future: Future[RolloutState | None] = field(default_factory=Future)


@dataclass(slots=True)
class _Request:
    line: _Line
    partition: int
    wants: list[Want]
    void_s: float
    states: list[RolloutState] = field(default_factory=list)


@dataclass(slots=True)
class _Line:
    """Those who wait here for rollouts of one run (or of any), and what is known of what they wait for."""

    run_id: str
    queues: dict[int, QueueSummary | None]
    free: deque[Want] = field(default_factory=deque[Want])
    asked: Counter[int] = field(default_factory=Counter[int])
    misses: int = 0
    not_before_s: float = 0.0
    is_put_off: bool = False
    since_s: float = field(default_factory=time.monotonic)
    ready: Future[None] = field(default_factory=Future[None])

    def turns(self, wanted: int) -> list[int]:
        """The partitions of the first ``wanted`` in turn, in order; fewer where fewer wait."""
        left: Counter[int] = Counter()
        heads: list[list[tuple[Place, int]]] = []
        for partition, queue in self.queues.items():
            if queue is not None:
                asked = self.asked[partition]
                left[partition] = max(0, queue.waiting - asked)
                heads.append([(place, partition) for place in queue.head[asked:]])
        turns = [partition for _, partition in heapq.merge(*heads)][:wanted]
        left.subtract(turns)
        for partition, waiting in left.items():  # behind the heads, in any order
            turns.extend([partition] * min(waiting, wanted - len(turns)))
        return turns

    def count(self, request: _Request, missed: Sequence[Want]) -> None:
        """A request was answered, and these got nothing."""
        if request.states or not request.wants:
            self.misses = 0
            self.not_before_s = 0.0
        elif missed:
            self.misses += 1
            delay_s = min(MISS_DELAY_S_MAX, MISS_DELAY_S * 2**self.misses)
            self.not_before_s = time.monotonic() + random.random() * delay_s  # noqa: S311  # no secret


class Dispatch:
    """Asks where work waits, as the partitions' summaries tell, in the order of all partitions' queues. Thread-safe.

    Each run that is asked for has a line of its own, so that nobody waits behind those who ask for another.

    The life cycle alone decides who gets what, so no rollout goes to two, and any number of processes may ask. A
    request is for as many as wait here at that moment, never for more: nobody hoards.

    Args:
        partitions: of ``rollout-events``.
        answer_timeout_s: how long a request stands.
        give_back: called with a start that nobody waits for any more.
    """

    def __init__(
        self,
        publisher: Publisher,
        clock: Clock,
        partitions: Iterable[int],
        *,
        answer_timeout_s: float,
        give_back: Callable[[RolloutState], None],
    ) -> None:
        self._publisher = publisher
        self._clock = clock
        self._answer_timeout_s = answer_timeout_s
        self._give_back = give_back
        self._lock = threading.RLock()
        self._answered = threading.Condition(self._lock)
        self._partitions = tuple(partitions)
        self._lines: dict[str, _Line] = {}
        self._requests: dict[str, _Request] = {}
        self._closed = False

    def ready(self, run_id: str = ANY_RUN) -> Future[None]:
        """Done once it is known what waits of that run in each partition, or after :data:`PATIENCE_S`.

        Asks every partition, the first time. Answers have to be passed on to here from then on.
        """
        with self._lock:
            is_new = run_id not in self._lines
            ready = self._line(run_id).ready
            if ready.done():
                return ready
            future: Future[None] = Future()
            ready.add_done_callback(lambda _: _resolve(future, None))
        if is_new:
            self._pump()
        return future

    def want(self, wants: Sequence[Want]) -> None:
        """Get work for these; those that come first get what is first in turn."""
        self.note(wants)
        self.ask()

    def note(self, wants: Sequence[Want]) -> None:
        """As :meth:`want`, where :meth:`ask` follows: once for all that come together."""
        with self._lock:
            if not self._closed:
                for want in wants:
                    self._line(want.run_id).free.append(want)
                return
        _cancel(wants)

    def ask(self) -> None:
        """Ask for what is wanted, as far as it makes sense now."""
        self._pump()

    def withdraw(self, want: Want) -> bool:
        """Whether it could be taken back: nothing has been asked for it (any more), and nothing will be."""
        with self._lock:
            line = self._lines.get(want.run_id)
            if line is None or want not in line.free:  # remove() costs 20 times as much: its error shows the want
                return False
            line.free.remove(want)
            return True

    def on_queues(self, partition: int, queues: Mapping[str, QueueSummary]) -> None:
        """What waits in a partition now, of the runs named."""
        wanted = False
        with self._lock:
            for run_id, queue in queues.items():
                if (line := self._lines.get(run_id)) is not None:
                    line.queues[partition] = queue
                    wanted = wanted or bool(line.free) or not line.ready.done()
        if wanted:
            self._pump()

    def on_answer(self, request_id: str, state: RolloutState | None, still_to_come: int) -> None:
        """One record of the answer to a request of ours, or of somebody else's."""
        with self._lock:
            request = self._requests.get(request_id)
            if request is None:
                return
            if state is not None:
                request.states.append(state)
            if still_to_come:
                return
            del self._requests[request_id]
            line = request.line
            line.asked[request.partition] -= len(request.wants)
            missed = [want for want in request.wants[len(request.states) :] if not want.future.cancelled()]
            line.count(request, missed)
            now_s = time.monotonic()
            late = [want for want in missed if want.deadline_s <= now_s]
            line.free.extendleft(want for want in reversed(missed) if want.deadline_s > now_s)
        for want, got in zip(request.wants, request.states, strict=False):
            if not _resolve(want.future, got):
                self._give_back(got)
        with self._answered:
            self._answered.notify_all()
        for want in late:
            _resolve(want.future, None)
        self._pump()

    def knows(self, request_id: str) -> bool:
        """Whether the answer to that request is awaited here."""
        return request_id in self._requests

    def due_in_s(self) -> float:
        """Seconds until :meth:`ask` should be called for what was put off after a miss; infinite for nothing."""
        with self._lock:
            soonest_s = min((line.not_before_s for line in self._lines.values() if line.is_put_off), default=math.inf)
        return max(0.0, soonest_s - time.monotonic())

    def tick(self) -> None:
        """Give up on what is void. To be called a few times a second."""
        now_s = time.monotonic()
        with self._lock:
            void = [name for name, request in self._requests.items() if request.void_s <= now_s]
            requests = [self._requests.pop(name) for name in void]
            for request in requests:
                request.line.asked[request.partition] -= len(request.wants)
                if not request.wants:
                    request.line.queues[request.partition] = None
        for request in requests:
            _fail(request.wants, self._no_answer())
        self._pump()

    def close(self, timeout_s: float) -> None:
        """Ask for nothing any more, and give back what still comes within ``timeout_s`` seconds.

        The futures of those who wait are cancelled, and of those who come later. What comes after ``timeout_s`` counts
        as unresponsive in the end, and is dispatched again if its retries allow.
        """
        with self._answered:
            self._closed = True
            wants = [want for line in self._lines.values() for want in line.free]
            wants += [want for request in self._requests.values() for want in request.wants]
            for line in self._lines.values():
                line.free.clear()
                _resolve(line.ready, None)
            _cancel(wants)
            self._answered.wait_for(lambda: not any(r.wants for r in self._requests.values()), timeout_s)

    def _line(self, run_id: str) -> _Line:
        """Under the lock."""
        line = self._lines.get(run_id)
        if line is None:
            line = self._lines[run_id] = _Line(run_id, dict.fromkeys(self._partitions))
            if self._closed:
                _resolve(line.ready, None)
        return line

    def _pump(self) -> None:
        """Write the requests that make sense now."""
        with self._lock:
            if self._closed:
                return
            known = [line for line in self._lines.values() if self._ask_for(line, time.monotonic())]
        for line in known:
            _resolve(line.ready, None)

    def _ask_for(self, line: _Line, now_s: float) -> bool:
        """Write the requests of one line; whether it is known well enough what waits for it. Under the lock."""
        unknown = [partition for partition, queue in line.queues.items() if queue is None]
        for partition in unknown:
            pending = (r for r in self._requests.values() if r.line is line and r.partition == partition)
            if all(request.wants for request in pending):
                self._open(line, partition, [])
        known = not unknown or now_s - line.since_s >= PATIENCE_S
        line.is_put_off = known and bool(line.free) and now_s < line.not_before_s
        if known and line.free and not line.is_put_off:
            shares: dict[int, list[Want]] = {}
            for partition in line.turns(len(line.free)):
                shares.setdefault(partition, []).append(line.free.popleft())
            for partition, wants in shares.items():
                for start in range(0, len(wants), WORKERS_PER_REQUEST_MAX):
                    self._open(line, partition, wants[start : start + WORKERS_PER_REQUEST_MAX])
        return known

    def _open(self, line: _Line, partition: int, wants: list[Want]) -> None:
        request_id = uuid.uuid4().hex
        now = self._clock.now_unix_nano()
        record = TaskRequest(
            request_id=request_id,
            worker_ids=[want.worker_id for want in wants],
            occurred_unix_nano=now,
            stands_nanos=int(self._answer_timeout_s * NANOS_PER_SECOND),
            run_id=line.run_id,
        )
        line.asked[partition] += len(wants)
        self._requests[request_id] = _Request(line, partition, wants, NEVER_S)
        try:
            written = self._publisher.publish(ROLLOUT_EVENTS, request_id, record, partition=partition)
        except LightstreamError as error:
            self._not_written(request_id, error)
            return
        written.add_done_callback(lambda done: self._written(request_id, done))

    def _written(self, request_id: str, done: Future[Position]) -> None:
        error = done.exception()
        if error is not None:
            self._not_written(request_id, error)
            return
        with self._lock:
            request = self._requests.get(request_id)
            if request is not None:  # else it is answered
                request.void_s = time.monotonic() + self._answer_timeout_s + ANSWER_MARGIN_S

    def _not_written(self, request_id: str, error: BaseException) -> None:
        with self._lock:
            request = self._requests.pop(request_id, None)
            if request is not None:
                request.line.asked[request.partition] -= len(request.wants)
        if request is not None:
            _fail(request.wants, error)

    def _no_answer(self) -> ServiceUnavailableError:
        return ServiceUnavailableError(
            f"the life cycle did not answer a request for work within {self._answer_timeout_s:g} s.",
            next_step="Is the worker running? `lightstream status` shows it; `lightstream worker` starts it.",
        )


def _resolve(future: Future[RolloutState | None] | Future[None], result: RolloutState | None) -> bool:
    """Whether somebody still waited for it."""
    if future.done():  # asking such a one is logged as a critical error
        return False
    try:
        if not future.set_running_or_notify_cancel():
            return False
    except RuntimeError:  # resolved before
        return False
    future.set_result(result)  # type: ignore[arg-type]  # a Future[None] is given None
    return True


def _cancel(wants: Iterable[Want]) -> None:
    for want in wants:
        want.future.cancel()


def _fail(wants: Iterable[Want], error: BaseException) -> None:
    for want in wants:
        if want.future.set_running_or_notify_cancel():
            want.future.set_exception(error)
