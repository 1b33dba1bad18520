"""Client settings shared by every librdkafka client, so that all agree on partitions, sizes and durability."""

from __future__ import annotations

import re
from typing import Any, Literal, TypeAlias

from lightstream.schemas.errors import ServiceUnavailableError

from ..services import running_services
from ..settings import Settings
from .client_log import CLIENT_LOG

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

EMBEDDED = re.compile(r"broker(-\d)?")
"""Names of embedded brokers: ``broker``, and of three also ``broker-2`` and ``broker-3``."""

INT32_MAX = 2**31 - 1


def bootstrap_servers(settings: Settings) -> str:
    """Addresses of the named cluster, else of the embedded brokers that run here.

    Raises:
        ServiceUnavailableError: no cluster was named and no embedded broker runs.
    """
    if settings.kafka_bootstrap_servers:
        return settings.kafka_bootstrap_servers
    embedded = [service.address for service in running_services(settings) if EMBEDDED.fullmatch(service.name)]
    if embedded:
        return ",".join(embedded)
    raise ServiceUnavailableError(
        "no Kafka: LIGHTSTREAM_KAFKA_BOOTSTRAP_SERVERS is not set, and no embedded broker runs with the data "
        f"folder {settings.data_dir}.",
        next_step="Start everything with `lightstream up` (for training `lightstream up --policy`), Kafka alone "
        "with `lightstream broker start`, or name a cluster.",
    )


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
    password = settings.kafka_sasl_password and settings.kafka_sasl_password.get_secret_value()
    key_password = settings.kafka_ssl_key_password and settings.kafka_ssl_key_password.get_secret_value()
    security: dict[str, object] = {
        "ssl.ca.location": settings.kafka_ssl_ca_file,
        "ssl.certificate.location": settings.kafka_ssl_certificate_file,
        "ssl.key.location": settings.kafka_ssl_key_file,
        "ssl.key.password": key_password,
        "sasl.mechanism": settings.kafka_sasl_mechanism,
    }
    if settings.kafka_sasl_mechanism == "OAUTHBEARER":
        security |= {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": settings.kafka_sasl_username,
            "sasl.oauthbearer.client.secret": password,
            "sasl.oauthbearer.token.endpoint.url": settings.kafka_oidc_url,
            "sasl.oauthbearer.scope": settings.kafka_oidc_scope,
        }
    elif settings.kafka_sasl_mechanism is not None:
        security |= {"sasl.username": settings.kafka_sasl_username, "sasl.password": password}
    return config | {name: str(value) for name, value in security.items() if value is not None}


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
    """A consumer that starts at the earliest record and never commits by itself.

    Args:
        group_id: gets the prefix of the topics in front, where it lacks it, so that one rule of an access control list
            by prefix admits all of our groups.
    """
    return common_config(settings) | {
        "group.id": group_id if group_id.startswith(settings.topic_prefix) else f"{settings.topic_prefix}{group_id}",
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
