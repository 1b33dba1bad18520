"""Client settings shared by every librdkafka client, so that all agree on partitions, sizes and durability."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from lightstream.schemas.errors import ServiceUnavailableError

from ..services import discover
from ..settings import Settings
from .client_log import CLIENT_LOG

__all__ = ["Compression", "bootstrap_servers", "common_config", "consumer_config", "producer_config"]

Compression: TypeAlias = Literal["zstd", "lz4", "none"]
"""Compression of a batch of records: the best, a quick one, or none."""

PARTITIONER = "murmur2_random"
"""As Faust, aiokafka and the Java client partition; librdkafka's own default (CRC32) sends 4 of 5 keys elsewhere."""

RECONNECT_BACKOFF_MAX_MS = 500
"""Short, so that a client is back within half a second of a broker's restart (librdkafka's default is 10 s)."""

FETCH_WAIT_MAX_MS = 250
"""The broker holds a fetch that finds nothing for at most so long (one record ends the wait at once): with a dozen idle
consumers, 50 ms cost a tenth of a core in the broker alone."""

FETCH_QUEUE_BACKOFF_MS = 5
"""A consumer whose local queue was full fetches again after this pause; librdkafka's default of a whole second stalls
every consumer that bounds the queue."""

FETCH_BYTES_OVERHEAD = 1024 * 1024
"""A fetched batch is a little larger than its one record."""

DECOMPRESSION_GROWTH = 3
"""librdkafka unpacks zstd into a buffer that it triples until the batch fits, and gives up beyond this limit: seen with
20 MB of one letter, which arrive as 1 kB (`Decompression … failed`) while the limit was the record's."""

INT32_MAX = 2**31 - 1


def bootstrap_servers(settings: Settings) -> str:
    """Addresses of the named cluster, else of the embedded broker that runs here.

    Raises:
        ServiceUnavailableError: no cluster was named and no embedded broker runs.
    """
    if settings.kafka_bootstrap_servers:
        return settings.kafka_bootstrap_servers
    try:
        return discover(settings, "broker").address
    except ServiceUnavailableError as error:
        raise ServiceUnavailableError(
            "no Kafka: LIGHTSTREAM_KAFKA_BOOTSTRAP_SERVERS is not set, and no embedded broker runs with the data "
            f"folder {settings.data_dir}.",
            next_step="Start everything with `lightstream up` (for training `lightstream up --policy`), Kafka alone "
            "with `lightstream broker start`, or name a cluster.",
        ) from error


def common_config(settings: Settings) -> dict[str, Any]:
    """The configuration that admin clients, producers and consumers share."""
    config: dict[str, Any] = {
        "bootstrap.servers": bootstrap_servers(settings),
        "security.protocol": settings.kafka_security_protocol,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": RECONNECT_BACKOFF_MAX_MS,
        "broker.address.family": "any",
        "log.connection.close": False,
        "logger": CLIENT_LOG,
    }
    if settings.kafka_sasl_mechanism:
        config["sasl.mechanism"] = settings.kafka_sasl_mechanism
        config["sasl.username"] = settings.kafka_sasl_username
        if settings.kafka_sasl_password is not None:
            config["sasl.password"] = settings.kafka_sasl_password.get_secret_value()
    if settings.kafka_ssl_ca_file:
        config["ssl.ca.location"] = str(settings.kafka_ssl_ca_file)
    return config


def producer_config(settings: Settings, *, linger_ms: float = 5.0, compression: Compression = "zstd") -> dict[str, Any]:
    """An idempotent producer whose acknowledgement means durable (``acks=all``)."""
    return common_config(settings) | {
        "enable.idempotence": True,
        "acks": "all",
        "partitioner": PARTITIONER,
        "compression.type": compression,
        "linger.ms": linger_ms,
        "message.max.bytes": settings.record_bytes_max,
        "queue.buffering.max.kbytes": settings.send_buffer_bytes_max // 1024,
        "queue.buffering.max.messages": 1_000_000,
        "delivery.timeout.ms": int(settings.publish_timeout_s * 1000),
        "retry.backoff.ms": 50,
        "retry.backoff.max.ms": 1000,
    }


def consumer_config(settings: Settings, *, group_id: str, read_committed: bool = False) -> dict[str, Any]:
    """A consumer that starts at the earliest record and never commits by itself."""
    return common_config(settings) | {
        "group.id": group_id,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "enable.partition.eof": False,
        "isolation.level": "read_committed" if read_committed else "read_uncommitted",
        "fetch.wait.max.ms": FETCH_WAIT_MAX_MS,
        "fetch.queue.backoff.ms": FETCH_QUEUE_BACKOFF_MS,
        "fetch.message.max.bytes": settings.record_bytes_max,
        "fetch.max.bytes": settings.record_bytes_max + FETCH_BYTES_OVERHEAD,
        "receive.message.max.bytes": min(
            DECOMPRESSION_GROWTH * settings.record_bytes_max + 2 * FETCH_BYTES_OVERHEAD, INT32_MAX
        ),
    }
