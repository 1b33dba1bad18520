"""Requests to the cluster: topic ids at the start of the view, repeated for a while, and end offsets."""

from __future__ import annotations

import time
from collections.abc import Iterable

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from lightstream.runtime.kafka import KafkaContact, common_config, create_topics, kafka_unavailable
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import AccessRefusedError, ServiceUnavailableError
from lightstream.schemas.topics import TOPICS, topic_named

from .positions import Place

REQUEST_TIMEOUT_S = 10.0
RETRY_PAUSE_S = 0.5


def topic_ids(settings: Settings, *, patience_s: float) -> dict[str, str]:
    """``topic <name>`` -> the id the cluster gave it, after creating the topics that are missing.

    A topic that was deleted and made again has another id, and so have those of another cluster.

    Raises:
        AccessRefusedError: the cluster does not let this client in.
        ServiceUnavailableError: the cluster did not answer within ``patience_s`` seconds.
        TopicMismatchError: a topic exists with other settings.
    """
    deadline = time.monotonic() + patience_s
    while True:
        try:
            create_topics(settings)
            return _topic_ids(settings)
        except AccessRefusedError:
            raise
        except (KafkaException, TimeoutError) as error:
            problem = kafka_unavailable(error)
        except ServiceUnavailableError as error:
            problem = error
        if time.monotonic() >= deadline:
            raise problem
        time.sleep(RETRY_PAUSE_S)


def _topic_ids(settings: Settings) -> dict[str, str]:
    names = {topic.full_name(settings.topic_prefix): topic.name for topic in TOPICS}
    admin = AdminClient(common_config(settings))
    described = admin.describe_topics(TopicCollection(list(names)), request_timeout=REQUEST_TIMEOUT_S)
    return {f"topic {names[full_name]}": str(future.result().topic_id) for full_name, future in described.items()}


def end_offsets(contact: KafkaContact, settings: Settings, places: Iterable[Place]) -> dict[Place, int]:
    """Place -> the offset after its last committed record, asked now.

    Raises:
        ServiceUnavailableError: the cluster does not answer.
    """
    full = {(topic_named(name).full_name(settings.topic_prefix), p): (name, p) for name, p in places}
    return {full[place]: end for place, end in contact.end_offsets(full).items()}
