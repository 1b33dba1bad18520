"""One kept admin client of a process: where partitions end now, and whether the cluster answers."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, cast

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # pyright: ignore[reportPrivateImportUsage]  # public, but missing in __all__  # isort: skip

from lightstream.schemas.errors import ServiceUnavailableError
from lightstream.schemas.topics import RESOURCES

from ..settings import Settings
from .config import common_config
from .unavailable import kafka_unavailable

if TYPE_CHECKING:
    from prometheus_client.core import Metric

REQUEST_TIMEOUT_S = 10.0
RETRY_PAUSE_S = 0.1

SILENCE_S_MAX = 10.0
"""A broker that restarts is away for less."""
ASK_INTERVAL_S = 2.0
"""An answer is good for so long: who asks for readiness often costs the cluster little."""
ASK_TIMEOUT_S = 2.0

LEADER_HAS_CHANGED = (
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError._NOENT,  # librdkafka's own: no partition asked for has a leader yet
)
"""Told while a broker starts again, and to a client that remembers the leaders of before. A new one asks anew."""

LATEST = cast("OffsetSpec", OffsetSpec.latest())  # type: ignore[no-untyped-call]  # the library leaves it untyped


class KafkaContact:
    """Asks the cluster, with a client that is made at the first question and kept. For any thread.

    Calling it says why a process is not ready (:data:`lightstream.runtime.health.Check`): the cluster was silent for
    ten seconds.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._admin: AdminClient | None = None
        self._making = threading.Lock()
        self._asking = threading.Lock()
        self._asked_s = -math.inf
        self._heard_s = -math.inf

    def __call__(self) -> str | None:
        """Ask whether the cluster is there, unless that is known; takes two seconds at most."""
        silent_s = self.silent_s()
        if silent_s is None:
            return "Kafka has not answered yet"
        return f"Kafka has not answered for {silent_s:.0f} s" if silent_s > SILENCE_S_MAX else None

    def silent_s(self) -> float | None:
        """Seconds since the cluster was last heard of; 0 while it answers, ``None`` where it never did.

        Asks it, unless it was asked within two seconds, and takes two seconds at most.
        """
        with self._asking:
            if time.monotonic() - max(self._asked_s, self._heard_s) >= ASK_INTERVAL_S:
                answers = self.answers(ASK_TIMEOUT_S)
                self._asked_s = time.monotonic()
                if answers:
                    self._heard_s = self._asked_s
            if self._heard_s == -math.inf:
                return None
            return 0.0 if self._heard_s >= self._asked_s else time.monotonic() - self._heard_s

    def readings(self) -> Iterable[Metric]:
        """For Prometheus (:data:`lightstream.runtime.metrics.Readings`): how long it was silent; nothing until it was
        heard of."""
        from prometheus_client.core import GaugeMetricFamily

        silent_s = self.silent_s()
        if silent_s is None:
            return []
        return [GaugeMetricFamily("lightstream_kafka_silent_seconds", "Time since Kafka was last heard of.", silent_s)]

    def answers(self, timeout_s: float) -> bool:
        """Whether the cluster answers now, within this time. Refusals are answers.

        A topic is asked about, not the cluster: librdkafka ends the process (an assertion in
        ``rd_kafka_admin_response_parse``) where the description of a cluster names no broker, as it does while the only
        one is starting, or too busy to tell its controller that it lives.
        """
        name = RESOURCES.full_name(self._settings.topic_prefix)
        try:
            client = self._client()  # has to live until it has the answer, whoever makes another meanwhile
            client.describe_topics(TopicCollection([name]), request_timeout=timeout_s)[name].result()
        except ServiceUnavailableError:
            return False
        except KafkaException as error:
            return bool(error.args[0].code() > 0)  # librdkafka's own, such as a time-out, are below
        return True

    def brokers(self, timeout_s: float) -> set[int]:
        """Ids of the brokers that their cluster counts as alive; none where it does not answer within this time."""
        try:
            return set(self._client().list_topics(timeout=timeout_s).brokers)
        except (KafkaException, ServiceUnavailableError):
            return set()

    def end_offsets(self, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """Place (a topic's full name and partition) -> the offset after its last committed record, asked now.

        Raises:
            ServiceUnavailableError: the cluster does not answer.
        """
        partitions = {TopicPartition(*place): place for place in places}
        if not partitions:
            return {}
        deadline_s = time.monotonic() + REQUEST_TIMEOUT_S
        while True:
            try:
                ends = self._list_offsets(partitions)
                self._heard_s = time.monotonic()
                return ends
            except KafkaException as error:
                if error.args[0].code() not in LEADER_HAS_CHANGED or time.monotonic() >= deadline_s:
                    raise kafka_unavailable(error) from error
            with self._making:
                self._admin = None
            time.sleep(RETRY_PAUSE_S)

    def _list_offsets(self, partitions: Mapping[TopicPartition, tuple[str, int]]) -> dict[tuple[str, int], int]:
        client = self._client()  # as above
        futures = client.list_offsets(
            dict.fromkeys(partitions, LATEST),
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=REQUEST_TIMEOUT_S,
        )
        return {partitions[place]: future.result().offset for place, future in futures.items()}

    def _client(self) -> AdminClient:
        with self._making:
            if self._admin is None:
                self._admin = AdminClient(common_config(self._settings))
            return self._admin
