"""From Kafka to batches: every partition of every topic, from where the file stands."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from threading import Event

from confluent_kafka import OFFSET_BEGINNING

from lightstream.runtime.clock import Clock
from lightstream.runtime.deletions import Deletions
from lightstream.runtime.kafka import TailBatch, TopicTail
from lightstream.runtime.settings import Settings
from lightstream.schemas.codec import Codec
from lightstream.schemas.errors import LightstreamError
from lightstream.schemas.topics import TOPICS

from .batch import Batch, BatchBuilder
from .positions import Place

GROUP_ID = "lightstream-view"
"""Never commits: the offsets are in the file."""

BATCH_ROWS_MAX = 20_000
"""About 70 MB of LLM spans of 640 tokens; larger transactions gain little (41 against 33 microseconds a row)."""
BATCH_BYTES_MAX = 64 * 1024 * 1024
"""Two batches are under way at most (one filled, one written), each up to about four times this decoded."""
FETCHED_KBYTES_MAX = 64 * 1024
"""Bytes that librdkafka may hold beyond that, over all partitions."""
FETCH_PARTITION_BYTES_MAX = 1024 * 1024
"""Per partition and request, compressed: text shrinks tenfold, and with 32 MB the partition that is asked for first is
read to its end before the others get a turn. A larger record still comes, alone."""
MESSAGES_PER_CALL_MAX = 500
IDLE_WAIT_S = 0.1
FILL_WAIT_S = 0.01
AWAITED_INTERVAL_S = 0.02
"""As above where somebody waits for what is there: one transaction serves all who came since the last."""
GATHER_S = 0.05
"""Time for which a first record after a quiet time waits for others: an attempt's end is four records in some 20 ms."""
ENDS_REFRESH_S = 0.25


class BatchReader:
    """Reads batches. For one thread.

    Args:
        next_offsets: where the file stands; other partitions are read from their beginning.
        interval_s: seconds from one transaction to the next when nobody waits for it.
        is_awaited: whether somebody waits for what the second offsets add to the first: then they are handed over.
        on_pass: called whenever it looks for records, some ten times a second.
        deletions: of runs, as far as they are known; those that come are added.

    Raises:
        ServiceUnavailableError: the cluster does not answer, or a topic is missing or not for this user.
    """

    def __init__(
        self,
        settings: Settings,
        codec: Codec,
        clock: Clock,
        next_offsets: Mapping[Place, int],
        interval_s: Callable[[], float],
        is_awaited: Callable[[Mapping[Place, int], Mapping[Place, int]], bool],
        on_pass: Callable[[], None],
        deletions: Deletions,
    ) -> None:
        self._settings = settings
        self._codec = codec
        self._clock = clock
        self._interval_s = interval_s
        self._is_awaited = is_awaited
        self._on_pass = on_pass
        self._deletions = deletions
        self._filling: Mapping[Place, int] = {}
        self._pending = TailBatch()
        self._assigned: set[Place] = set()
        self._ends: dict[Place, int] = {}
        self._next_ends_s = 0.0
        self._handed_over_s = 0.0
        limits = {
            "queued.max.messages.kbytes": FETCHED_KBYTES_MAX,
            "fetch.message.max.bytes": FETCH_PARTITION_BYTES_MAX,
        }
        self._tail = TopicTail(settings, TOPICS, group_id=GROUP_ID, limits=limits)
        self._topics = {topic.full_name(settings.topic_prefix): topic for topic in TOPICS}
        self._start_offsets = dict(next_offsets)
        self._sent = dict(next_offsets)
        try:
            self._tail.partitions()
        except LightstreamError:
            self._tail.close()
            raise
        self._assign_new_partitions()

    def collect(self, stopping: Event) -> Batch | None:
        """The next batch; blocks until there is one, or returns ``None`` once ``stopping`` is set.

        Raises:
            ServiceUnavailableError: a topic is missing, was deleted, or is not for this user: names it.
        """
        settings = self._settings
        builder = BatchBuilder(self._codec, self._clock, settings, self._deletions)
        self._filling = builder.next_offsets
        first_s: float | None = None
        while not stopping.is_set():
            self._on_pass()
            now_s = time.monotonic()
            self._assign_new_partitions()
            if now_s >= self._next_ends_s:
                self._note_ends(now_s)
            wait_s = IDLE_WAIT_S if first_s is None else FILL_WAIT_S
            count = self._add_to(builder, wait_s)
            if first_s is None and count:
                first_s = time.monotonic()
            is_full = builder.record_count >= BATCH_ROWS_MAX or builder.value_bytes >= BATCH_BYTES_MAX
            is_drained = count < MESSAGES_PER_CALL_MAX
            if is_full or (first_s is not None and is_drained and self._is_due(first_s, builder.next_offsets)):
                self._handed_over_s = time.monotonic()
                self._sent.update(builder.next_offsets)
                return builder.build()
        return None

    def _add_to(self, builder: BatchBuilder, wait_s: float) -> int:
        """Add what has come until the batch is large enough; the rest is for the next. Returns how much had come."""
        batch, self._pending = self._pending, TailBatch()
        if not batch.records and not batch.reached:
            batch = self._tail.poll(wait_s, records_max=MESSAGES_PER_CALL_MAX)
        for place, message in enumerate(batch.records):
            if builder.value_bytes >= BATCH_BYTES_MAX:
                self._pending = TailBatch(batch.records[place:], batch.reached)
                break
            builder.add(self._topics[message.topic() or ""], message)
        else:
            for reached in batch.reached:
                builder.reached(self._topics[reached.topic], reached.partition, reached.offset)
        return len(batch.records) + len(batch.reached)

    def end_offsets(self) -> dict[Place, int]:
        """Place -> end of the partition as last heard from the broker; for any thread, asks nobody."""
        return dict(self._ends)

    def fetched(self) -> dict[Place, int]:
        """Place -> next offset to be fetched; for any thread."""
        return {**self._sent, **self._filling}

    def places(self) -> set[Place]:
        """Partitions that are read."""
        return set(self._assigned)

    def close(self) -> None:
        """Leave the cluster."""
        self._tail.close()

    def _is_due(self, first_s: float, next_offsets: Mapping[Place, int]) -> bool:
        """Whether what came since ``first_s`` goes out now."""
        now_s = time.monotonic()
        if now_s >= max(first_s + GATHER_S, self._handed_over_s + self._interval_s()):
            return True
        return now_s >= self._handed_over_s + AWAITED_INTERVAL_S and self._is_awaited(self._sent, next_offsets)

    def _note_ends(self, now_s: float) -> None:
        """Keep what fetches told. Here, because a confluent consumer lets one thread in at a time."""
        self._next_ends_s = now_s + ENDS_REFRESH_S
        self._ends = {(topic.name, p): end for (topic, p), end in self._tail.heard_end_offsets().items()}

    def _assign_new_partitions(self) -> None:
        """Take up partitions that the cluster has told of since."""
        for topic, partitions in self._tail.known_partitions.items():
            new = [partition for partition in partitions if (topic.name, partition) not in self._assigned]
            if new:
                starts = {p: self._start_offsets.get((topic.name, p), OFFSET_BEGINNING) for p in new}
                self._tail.follow(topic, starts)
                self._assigned |= {(topic.name, partition) for partition in new}
