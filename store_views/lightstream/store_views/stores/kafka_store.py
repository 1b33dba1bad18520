"""The store on Kafka: writes are facts in ``rollout-events``, answers are verdicts in ``rollouts``."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from lightstream.schemas.clock import Clock, SystemClock
from lightstream.schemas.codec import codec_for
from lightstream.schemas.errors import NotFoundError, ServiceUnavailableError, StoreError
from lightstream.schemas.interfaces import EnqueueRolloutRequest, LightningStore
from lightstream.schemas.kafka import KafkaPublisher
from lightstream.schemas.records import (
    ResourcesRecord,
    RolloutEvent,
    RolloutState,
    VerdictOutcome,
    WorkerHeartbeat,
)
from lightstream.schemas.settings import Settings
from lightstream.schemas.topics import RESOURCES, ROLLOUT_EVENTS, WORKERS
from lightstream.schemas.types import AttemptedRollout, Rollout

from . import _facts, _shapes
from ._follower import Follower, is_unknown
from ._queue import QueuedTask, TaskQueue

__all__ = ["KafkaLightningStore"]

LINGER_MS = 1.0
"""Facts are small and waited for; a millisecond lets a burst share a batch."""


class KafkaLightningStore(LightningStore):
    """A :class:`LightningStore` for processes that reach Kafka.

    Each write waits for the life cycle's verdict, up to ``settings.publish_timeout_s`` seconds, so a restart of the
    broker or of the worker in between costs time and nothing else.

    Args:
        settings: names the cluster and the topics.
    """

    def __init__(self, settings: Settings, *, clock: Clock | None = None) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self._codec = codec_for(settings)
        self._publisher = KafkaPublisher(settings, codec=self._codec, linger_ms=LINGER_MS)
        self._follower = Follower(settings, self._codec)
        self._queue: TaskQueue | None = None
        self._queue_lock = threading.Lock()
        self._taking = ThreadPoolExecutor(1, thread_name_prefix="lightstream-dequeue")
        self._waiting = ThreadPoolExecutor(4, thread_name_prefix="lightstream-resources")

    async def start(self) -> None:
        """Connect. Call once, before anything else.

        Raises:
            ServiceUnavailableError: Kafka does not answer or lacks our topics.
        """
        await asyncio.to_thread(self._follower.start)

    async def enqueue_many_rollouts(self, requests: Sequence[EnqueueRolloutRequest]) -> list[Rollout]:
        now = self._clock.now_unix_nano()
        states = await asyncio.gather(*(self._judged(_facts.enqueued(request, now)) for request in requests))
        return [_shapes.rollout(state) for state in states]

    async def dequeue_rollout(self, worker_id: str, *, timeout_s: float = 0.0) -> AttemptedRollout | None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            taken = await loop.run_in_executor(self._taking, self._take_until, deadline)
            if taken is None:
                if loop.time() >= deadline:
                    return None
                continue
            if taken.task is None:
                self._task_queue().settle(taken)
                continue
            fact = _facts.attempt_started(taken.task, worker_id, self._clock.now_unix_nano())
            state = await self._judged(fact)
            self._task_queue().settle(taken)
            if state.verdict.outcome is VerdictOutcome.APPLIED and fact.attempt_id is not None:
                return _shapes.attempted_rollout(state, fact.attempt_id)

    def _take_until(self, deadline_s: float) -> QueuedTask | None:
        """Runs in the one taking thread, where a call may have waited behind others: their time counts as its own.

        ``deadline_s`` is on the monotonic clock, as event loops count.
        """
        return self._task_queue().take(max(0.0, deadline_s - time.monotonic()))

    async def end_attempt(
        self,
        rollout_id: str,
        attempt_id: str,
        *,
        succeeded: bool,
        error_type: str | None = None,
        error_message: str | None = None,
    ) -> RolloutState:
        fact = _facts.attempt_ended(
            rollout_id,
            attempt_id,
            self._clock.now_unix_nano(),
            succeeded=succeeded,
            error_type=error_type,
            error_message=error_message,
        )
        return self._known(await self._judged(fact))

    async def heartbeat(self, worker: WorkerHeartbeat, attempts: Sequence[tuple[str, str]]) -> None:
        now = self._clock.now_unix_nano()
        facts = [_facts.heartbeat(rollout_id, attempt_id, worker.worker_id, now) for rollout_id, attempt_id in attempts]
        futures = [self._publisher.publish(ROLLOUT_EVENTS, fact.rollout_id, fact) for fact in facts]
        futures.append(self._publisher.publish(WORKERS, worker.worker_id, worker))
        await asyncio.gather(*map(asyncio.wrap_future, futures))

    async def cancel_rollout(self, rollout_id: str, reason: str = "") -> RolloutState:
        fact = _facts.cancelled(rollout_id, reason, self._clock.now_unix_nano())
        return self._known(await self._judged(fact))

    async def wait_for_rollouts(self, rollout_ids: Sequence[str], timeout_s: float | None = None) -> list[RolloutState]:
        """As the interface says, for rollouts that end from now on.

        A rollout that had ended before the call is not seen here: enqueueing it again tells its state.
        """
        futures = [asyncio.wrap_future(self._follower.expect_terminal(rollout_id)) for rollout_id in rollout_ids]
        if futures:
            await asyncio.wait(futures, timeout=timeout_s)
        ended = [future.result() for future in futures if future.done() and not future.cancelled()]
        for future in futures:
            future.cancel()
        return ended

    async def add_resources(self, record: ResourcesRecord) -> ResourcesRecord:
        await asyncio.wrap_future(self._publisher.publish(RESOURCES, record.resources_id, record))
        return record

    async def get_resources(self, resources_id: str | None = None, *, timeout_s: float = 10.0) -> ResourcesRecord:
        loop = asyncio.get_running_loop()
        found = self._follower.resources(resources_id, 0.0)
        if found is None:
            found = await loop.run_in_executor(self._waiting, self._follower.resources, resources_id, timeout_s)
        if found is None:
            name = "Resources" if resources_id is None else f"Resources {resources_id}"
            raise NotFoundError(f"{name} not found within {timeout_s} s.")
        return found

    async def close(self) -> None:
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._taking.shutdown(wait=True, cancel_futures=True)
        if self._queue is not None:
            self._queue.close()
        self._publisher.close()
        self._follower.stop()
        self._waiting.shutdown(wait=True, cancel_futures=True)

    def _task_queue(self) -> TaskQueue:
        """The queue, joined when the first task is asked for: a store that only enqueues takes no partitions."""
        with self._queue_lock:
            if self._queue is None:
                self._queue = TaskQueue(self._settings, self._codec)
            return self._queue

    async def _judged(self, fact: RolloutEvent) -> RolloutState:
        """Write a fact and return the state that carries its verdict.

        Raises:
            ServiceUnavailableError: no verdict in time; the fact is durable and will be judged later.
        """
        verdict = self._follower.expect_verdict(fact.rollout_id, fact.event_id)
        try:
            await asyncio.wrap_future(self._publisher.publish(ROLLOUT_EVENTS, fact.rollout_id, fact))
            async with asyncio.timeout(self._settings.publish_timeout_s):
                return await asyncio.wrap_future(verdict)
        except TimeoutError as error:
            raise ServiceUnavailableError(
                f"no verdict on {fact.event_id} within {self._settings.publish_timeout_s} s.",
                next_step="Does the worker run? `lightstream status` tells; `lightstream worker` starts it.",
            ) from error
        finally:
            verdict.cancel()

    @staticmethod
    def _known(state: RolloutState) -> RolloutState:
        if is_unknown(state):
            raise NotFoundError(f"Rollout {state.rollout.rollout_id} not found")
        if state.verdict.outcome is VerdictOutcome.REFUSED:
            raise StoreError(state.verdict.reason)
        return state
