"""Which log a cluster and a topic prefix name."""

from __future__ import annotations

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from lightstream.runtime.kafka import common_config
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import ServiceUnavailableError
from lightstream.schemas.topics import ROLLOUTS

__all__ = ["log_id"]

REQUEST_TIMEOUT_S = 10.0


def log_id(settings: Settings) -> str:
    """The id that the cluster gave the topic ``rollouts``: another one where that was deleted and made again.

    Raises:
        ServiceUnavailableError: the cluster does not answer.
    """
    name = ROLLOUTS.full_name(settings.topic_prefix)
    try:
        admin = AdminClient(common_config(settings))
        described = admin.describe_topics(TopicCollection([name]), request_timeout=REQUEST_TIMEOUT_S)
        return str(described[name].result(REQUEST_TIMEOUT_S).topic_id)
    except KafkaException as error:
        raise ServiceUnavailableError(f"Kafka does not answer: {error}.") from error
