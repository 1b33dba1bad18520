"""The error that is raised where Kafka does not answer or refuses a request, with a next step."""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError, KafkaException

from lightstream.schemas.errors import ServiceUnavailableError

IS_IT_UP = (
    "Is the cluster up, and is LIGHTSTREAM_KAFKA_BOOTSTRAP_SERVERS right? Where it asks for TLS or a login, "
    "LIGHTSTREAM_KAFKA_SECURITY_PROTOCOL must say so."
)

TOPIC_MISSING = (
    "Was it deleted, or is LIGHTSTREAM_TOPIC_PREFIX wrong? `lightstream topics create` creates what is missing; then "
    "start this process again."
)

STEPS: Final = {
    KafkaError.INVALID_REPLICATION_FACTOR: (
        "LIGHTSTREAM_TOPIC_REPLICATION_FACTOR may be at most the number of the cluster's brokers."
    ),
    KafkaError.TOPIC_AUTHORIZATION_FAILED: (
        "Give this client's Kafka user the rights to Describe, Read and Write our topics; whoever creates them needs "
        "Create and DescribeConfigs too."
    ),
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "Give this client's Kafka user the right to Describe the cluster.",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "Give this client's Kafka user the rights to Describe and Read groups.",
    KafkaError.INVALID_TIMESTAMP: (
        "Is the clock of this machine right? The topic's message.timestamp.before.max.ms and "
        "message.timestamp.after.max.ms say what it takes."
    ),
    KafkaError.INVALID_RECORD: "Ask the cluster's operator which check of this topic refuses our records.",
    KafkaError.UNKNOWN_TOPIC_OR_PART: TOPIC_MISSING,
    KafkaError._UNKNOWN_TOPIC: TOPIC_MISSING,
    KafkaError._UNKNOWN_PARTITION: TOPIC_MISSING,
}
"""Next steps by Kafka's error code; for any other code the cluster may be gone."""


def kafka_unavailable(why: object, *, what: str = "Kafka does not answer") -> ServiceUnavailableError:
    """The error to raise.

    Args:
        why: the client's error, or text.
        what: what failed, as the beginning of a sentence.
    """
    reason = "no answer in time" if isinstance(why, TimeoutError) else str(why)
    step = STEPS.get(why.args[0].code(), IS_IT_UP) if isinstance(why, KafkaException) else IS_IT_UP
    return ServiceUnavailableError(f"{what}: {reason}.", next_step=step)
