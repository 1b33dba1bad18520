"""Notices a worker that stands still although Kafka answers and has records for it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from confluent_kafka import Consumer, KafkaException, TopicPartition
from faust.types import TP

from lightstream.schemas.clock import Clock
from lightstream.schemas.errors import LightstreamError
from lightstream.schemas.kafka import consumer_config
from lightstream.schemas.settings import Settings

__all__ = ["CHECK_INTERVAL_S", "STALL_S_MAX", "Watchdog"]

CHECK_INTERVAL_S = 10.0
STALL_S_MAX = 90.0
"""Longer than a record may take to become durable (``publish_timeout_s``, 60 s), which ends the worker by itself."""

REQUEST_TIMEOUT_S = 3.0


class Watchdog:
    """Compares positions with the ends of the partitions. Any silence of Kafka sets the time back to zero."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._since: dict[TP | None, tuple[int, int]] = {}

    def check(self, positions: Mapping[TP, int], rebalancing: bool) -> None:
        """Blocking; call it in a thread, every ``CHECK_INTERVAL_S``.

        Args:
            positions: next offset each partition's task expects.
            rebalancing: whether the worker waits for its partitions.

        Raises:
            LightstreamError: something has stood still for ``STALL_S_MAX`` seconds.
        """
        try:
            ends = self._ends(list(positions))
        except KafkaException:
            self._since.clear()
            return
        waiting: dict[TP | None, int] = {p: at for p, at in positions.items() if at < ends[p]}
        if rebalancing:
            waiting[None] = 0
        now = self._clock.now_unix_nano()
        before, self._since = self._since, {}
        for place, position in waiting.items():
            known = before.get(place)
            since = known[1] if known is not None and known[0] == position else now
            self._since[place] = (position, since)
            if now - since > STALL_S_MAX * 1e9:
                what = "got no partitions" if place is None else f"stayed at offset {position} of {place}"
                raise LightstreamError(
                    f"the worker {what} for {STALL_S_MAX:g} s while Kafka answered.",
                    next_step="It ends without committing; restarted, it reads from the committed offset again.",
                )

    def _ends(self, places: list[TP]) -> dict[TP, int]:
        with closing(Consumer(consumer_config(self._settings, group_id="lightstream-watchdog"))) as consumer:
            consumer.list_topics(timeout=REQUEST_TIMEOUT_S)
            return {
                place: consumer.get_watermark_offsets(
                    TopicPartition(place.topic, place.partition), timeout=REQUEST_TIMEOUT_S
                )[1]
                for place in places
            }
