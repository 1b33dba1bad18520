"""Ends a worker that stands still although Kafka answers and has records for it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from confluent_kafka import Consumer, KafkaException, TopicPartition
from faust.types import TP

from lightstream.runtime.clock import NANOS_PER_SECOND, Clock
from lightstream.runtime.kafka import consumer_config
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import LightstreamError

CHECK_INTERVAL_S = 10.0
REQUEST_TIMEOUT_S = 3.0

MARGIN_S = 30.0
"""Beyond the time in which a record becomes durable or ends the worker by itself: for the check and the ending."""
STALL_S_MIN = 90.0
"""However soon records have to be durable: a rebalance and the reading of states take their time too."""


def stall_s_max(settings: Settings) -> float:
    """Seconds for which a worker may stand still while Kafka answers."""
    return max(STALL_S_MIN, settings.publish_timeout_s + MARGIN_S)


class Watchdog:
    """Compares positions with the ends of the partitions. Any silence of Kafka sets the time back to zero."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._stall_s_max = stall_s_max(settings)
        self._since: dict[TP | None, tuple[int, int]] = {}

    def forget(self) -> None:
        """Count from the next check on: a standstill until now had a reason."""
        self._since.clear()

    def check(self, positions: Mapping[TP, int], rebalancing: bool) -> None:
        """Blocking; call it in a thread, every ``CHECK_INTERVAL_S``.

        Args:
            positions: next offset each partition's task expects.
            rebalancing: whether the worker waits for its partitions.

        Raises:
            LightstreamError: something has stood still for :func:`stall_s_max` seconds.
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
        for tp, position in waiting.items():
            known = before.get(tp)
            since = known[1] if known is not None and known[0] == position else now
            self._since[tp] = (position, since)
            if now - since > self._stall_s_max * NANOS_PER_SECOND:
                what = "got no partitions" if tp is None else f"stayed at offset {position} of {tp}"
                raise LightstreamError(
                    f"the worker {what} for {self._stall_s_max:g} s while Kafka answered.",
                    next_step="It ends without committing; restarted, it reads from the committed offset again.",
                )

    def _ends(self, partitions: list[TP]) -> dict[TP, int]:
        with closing(Consumer(consumer_config(self._settings, group_id="lightstream-watchdog"))) as consumer:
            consumer.list_topics(timeout=REQUEST_TIMEOUT_S)
            return {
                tp: consumer.get_watermark_offsets(TopicPartition(tp.topic, tp.partition), timeout=REQUEST_TIMEOUT_S)[1]
                for tp in partitions
            }
