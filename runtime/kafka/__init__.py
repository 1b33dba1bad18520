"""Kafka clients that all parts share."""

from .admin import change_topics, create_topics, differing_topics
from .config import Compression, bootstrap_servers, common_config, consumer_config, producer_config
from .connect import connected
from .contact import KafkaContact
from .offset_ranges import OffsetRange, joined_ranges
from .partition_reader import PartitionReader, logged_unix_nano, partitions_of
from .publisher import RECORD_OVERHEAD_BYTES_MAX, KafkaPublisher
from .publishing import BY_KEY, BatchPublisher, Delivered, Headers, Instead, Outgoing, Position, Publisher, RecordSink
from .queue_headers import (
    ANSWERS,
    HEAD_LENGTH,
    QUEUE,
    STATE,
    Place,
    QueueSummary,
    answers_header,
    queues_header,
    read_answers,
    read_queues,
    read_state,
    state_header,
)
from .read_errors import ANSWER_TIMEOUT_S, ReadErrors, answered, grant_step, kafka_user
from .run_header import RUN, of_another_run, run_headers
from .smaller_letters import KEY_BYTES_MAX, NO_PARTITION, letter_instead, smaller_letter
from .topic_tail import Reached, TailBatch, TopicTail
from .unavailable import kafka_unavailable
from .writer_header import WRITER, decoded, unread_reason, with_writer, writer_in

__all__ = [
    "ANSWERS",
    "ANSWER_TIMEOUT_S",
    "BY_KEY",
    "HEAD_LENGTH",
    "KEY_BYTES_MAX",
    "NO_PARTITION",
    "QUEUE",
    "RECORD_OVERHEAD_BYTES_MAX",
    "RUN",
    "STATE",
    "WRITER",
    "BatchPublisher",
    "Compression",
    "Delivered",
    "Headers",
    "Instead",
    "KafkaContact",
    "KafkaPublisher",
    "OffsetRange",
    "Outgoing",
    "PartitionReader",
    "Place",
    "Position",
    "Publisher",
    "QueueSummary",
    "Reached",
    "ReadErrors",
    "RecordSink",
    "TailBatch",
    "TopicTail",
    "answered",
    "answers_header",
    "bootstrap_servers",
    "change_topics",
    "common_config",
    "connected",
    "consumer_config",
    "create_topics",
    "decoded",
    "differing_topics",
    "grant_step",
    "joined_ranges",
    "kafka_unavailable",
    "kafka_user",
    "letter_instead",
    "logged_unix_nano",
    "of_another_run",
    "partitions_of",
    "producer_config",
    "queues_header",
    "read_answers",
    "read_queues",
    "read_state",
    "run_headers",
    "smaller_letter",
    "state_header",
    "unread_reason",
    "with_writer",
    "writer_in",
]
