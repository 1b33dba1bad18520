"""Topics of a test, deleted when it is over."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient

from lightstream.runtime.settings import Settings
from lightstream.schemas.topics import TOPICS

__all__ = ["delete_topics"]


def delete_topics(admin: AdminClient, settings: Settings) -> None:
    """Ask for it and do not wait. A broker takes ever longer for everything the more topics it has: with 400 sets of
    them left behind, making the next took three times the processor time."""
    admin.delete_topics([topic.full_name(settings.topic_prefix) for topic in TOPICS])
