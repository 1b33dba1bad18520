"""Before the worker starts: are its topics there, and do they fit together?"""

from __future__ import annotations

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from lightstream.runtime.kafka import bootstrap_servers, common_config, kafka_unavailable
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import ServiceUnavailableError, TopicMismatchError
from lightstream.schemas.topics import (
    DEAD_LETTERS,
    ROLLOUT_EVENTS,
    ROLLOUTS,
    SPANS,
    TRAJECTORIES,
)

__all__ = ["check_topics"]

REQUEST_TIMEOUT_S = 10.0


def check_topics(settings: Settings) -> None:
    """Blocking; changes nothing.

    Raises:
        ServiceUnavailableError: the cluster does not answer, or lacks a topic.
        TopicMismatchError: topics that must have equal numbers of partitions have not, so that partition p of one
            would not hold the same rollouts as partition p of the other.
    """
    try:
        found = AdminClient(common_config(settings)).list_topics(timeout=REQUEST_TIMEOUT_S).topics
    except KafkaException as error:
        raise kafka_unavailable(error, what=f"Kafka at {bootstrap_servers(settings)} does not answer") from error
    for topic in (ROLLOUT_EVENTS, ROLLOUTS, SPANS, TRAJECTORIES, DEAD_LETTERS):
        name = topic.full_name(settings.topic_prefix)
        if name not in found:
            raise ServiceUnavailableError(
                f"the cluster has no topic {name!r}.", next_step="Create them with `lightstream topics create`."
            )
    wanted = len(found[ROLLOUT_EVENTS.full_name(settings.topic_prefix)].partitions)
    for topic in (ROLLOUTS, SPANS):
        name = topic.full_name(settings.topic_prefix)
        partitions = len(found[name].partitions)
        if partitions != wanted:
            raise TopicMismatchError(name, {"partitions": (f"{wanted}, as rollout-events has", str(partitions))})
