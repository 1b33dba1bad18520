"""Helpers of the producers' tests."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from lightstream.runtime.kafka import PartitionReader, consumer_config
from lightstream.runtime.settings import Settings
from lightstream.schemas.codec import Codec
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.records import Record, SpanRecord, WorkerHeartbeat
from lightstream.schemas.topics import SPANS, Topic
from lightstream.schemas.types import (
    UNSET,
    Attempt,
    AttemptedRollout,
    AttemptStatus,
    EnqueueRolloutRequest,
    NamedResources,
    ResourcesUpdate,
    Rollout,
    RolloutConfig,
    Unset,
)


def read_records(settings: Settings, topic: Topic) -> list[tuple[str, Record]]:
    """All records of a topic with their keys, from its beginning to where it ends now."""
    consumer = Consumer(consumer_config(settings, group_id=f"test-{uuid.uuid4().hex}"))
    name = topic.full_name(settings.topic_prefix)
    codec = Codec()
    found: list[tuple[str, Record]] = []
    try:
        for partition in range(topic.partitions(settings.topic_partitions)):
            first, end = PartitionReader(settings, topic, partition, group_id="tests").watermarks()
            consumer.assign([TopicPartition(name, partition, first)])
            for _ in range(first, end):
                message = consumer.poll(30)
                assert message is not None, f"{name}[{partition}] ends at {end}, and a record does not come"
                assert message.error() is None, message.error()
                key = message.key()
                assert key is not None
                found.append((key.decode(), codec.decode(message.value())))
    finally:
        consumer.close()
    return found


def read_spans(settings: Settings) -> list[SpanRecord]:
    """All span records of the topic, from its beginning to where it ends now."""
    found: list[SpanRecord] = []
    for key, record in read_records(settings, SPANS):
        assert isinstance(record, SpanRecord)
        assert key == (record.rollout_id or record.trace_id)
        found.append(record)
    return found


@dataclass
class Spans:
    """Ended spans of the real SDK, kept in memory."""

    limits: SpanLimits | None = None
    memory: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)

    def __post_init__(self) -> None:
        self.provider = TracerProvider(span_limits=self.limits, shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.memory))
        self.tracer = self.provider.get_tracer("test-scope", "1.2.3", schema_url="https://example.org/schema")

    def ended(self) -> Sequence[ReadableSpan]:
        return self.memory.get_finished_spans()


@dataclass
class ListStore(LightningStore):
    """The control plane as a list: rollouts are dispatched once, ends are written down."""

    waiting: list[AttemptedRollout] = field(default_factory=list[AttemptedRollout])
    resources: dict[str, ResourcesUpdate] = field(default_factory=dict[str, ResourcesUpdate])
    ended: dict[str, tuple[bool, str | None, str | None]] = field(
        default_factory=dict[str, tuple[bool, str | None, str | None]]
    )
    heartbeats: list[tuple[WorkerHeartbeat, list[tuple[str, str]]]] = field(
        default_factory=list[tuple[WorkerHeartbeat, list[tuple[str, str]]]]
    )

    async def enqueue_many_rollouts(self, rollouts: Sequence[EnqueueRolloutRequest]) -> list[Rollout]:
        made: list[Rollout] = []
        for request in rollouts:
            rollout_id = request.rollout_id or uuid.uuid4().hex
            rollout = AttemptedRollout(
                rollout_id=rollout_id,
                input=request.input,
                start_time=1.0,
                mode=request.mode,
                resources_id=request.resources_id,
                config=request.config or RolloutConfig(),
                metadata=request.metadata,
                attempt=Attempt(rollout_id=rollout_id, attempt_id=f"{rollout_id}-a1", sequence_id=1, start_time=1.0),
            )
            self.waiting.append(rollout)
            made.append(rollout)
        return made

    async def dequeue_rollout(
        self, worker_id: str | None = None, *, timeout_s: float = 0.0, run_id: str = "*"
    ) -> AttemptedRollout | None:
        if not self.waiting:
            await asyncio.sleep(min(timeout_s, 0.01))
        return self.waiting.pop(0) if self.waiting else None

    async def update_attempt(
        self, rollout_id: str, attempt_id: str, status: AttemptStatus | Unset = UNSET, *_: Any, **why: Any
    ) -> Attempt:
        assert rollout_id not in self.ended, f"{rollout_id} ended twice"
        if status is UNSET:
            raise AssertionError("an attempt that runs says how it ends, nothing else")
        assert (status == "timeout") == (why["error_type"] == "Timeout")
        self.ended[rollout_id] = (status == "succeeded", why["error_type"], why["error_message"])
        return Attempt(rollout_id=rollout_id, attempt_id=attempt_id, sequence_id=1, start_time=1.0, status=status)

    async def heartbeat(self, worker: WorkerHeartbeat, attempts: Sequence[tuple[str, str]]) -> None:
        self.heartbeats.append((worker, list(attempts)))

    async def update_resources(self, resources_id: str, resources: NamedResources) -> ResourcesUpdate:
        update = ResourcesUpdate(
            resources_id=resources_id, create_time=1.0, update_time=1.0, version=1, resources=resources
        )
        self.resources[resources_id] = update
        return update

    async def get_resources_by_id(self, resources_id: str, *, timeout_s: float = 0.0) -> ResourcesUpdate | None:
        return self.resources.get(resources_id)

    async def get_latest_resources(self, *, timeout_s: float = 0.0) -> ResourcesUpdate | None:
        return list(self.resources.values())[-1] if self.resources else None
