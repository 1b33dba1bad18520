"""Spans that go into a store, because it is not Kafka's, to which they go anyway."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from lightstream.schemas.attribute_names import AGL_ATTEMPT_ID, AGL_ROLLOUT_ID, AGL_SPAN_SEQUENCE_ID
from lightstream.schemas.errors import PublishError, StoreError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.packing import unpack_int32
from lightstream.schemas.records import Record, SpanRecord
from lightstream.schemas.topics import Topic
from lightstream.schemas.types import Span

if TYPE_CHECKING:
    from lightstream.runtime.kafka import Headers, Instead, Position

__all__ = ["StorePublisher", "store_for_spans"]

logger = logging.getLogger(__name__)

RAW_REQUEST = "raw_gen_ai_request"
"""LiteLLM's name of the span."""


def store_for_spans(store: LightningStore) -> LightningStore | None:
    """The store that spans have to be written into; ``None`` where Kafka is the store."""
    from lightstream.store_views.stores import KafkaLightningStore
    from lightstream.store_views.stores.forwarding import ForwardingStore

    while isinstance(store, ForwardingStore):
        store = store.store
    return None if isinstance(store, KafkaLightningStore) else store


class StorePublisher:
    """A :class:`~lightstream.runtime.kafka.Publisher` of the LLM proxy's spans, into a store. Used in an event loop.

    Spans of no attempt, which no store can keep, are named in the log and left out.
    """

    def __init__(self, store: LightningStore) -> None:
        self._store = store

    def publish(
        self,
        topic: Topic,
        key: str,
        record: Record | None,
        *,
        headers: Headers | None = None,
        partition: int = -1,
        instead: Instead | None = None,
    ) -> Future[Position]:
        if not isinstance(record, SpanRecord):
            raise PublishError(f"a store takes spans from the proxy, and no {type(record).__name__}")
        return asyncio.run_coroutine_threadsafe(self._add(topic, record), asyncio.get_running_loop())

    def flush(self, timeout_s: float) -> int:
        """Nothing is on its way: the publisher waits for it."""
        return 0

    async def _add(self, topic: Topic, record: SpanRecord) -> Position:
        from lightstream.runtime.kafka import Position

        nowhere = Position(topic.name, -1, -1)
        rollout_id, attempt_id = record.rollout_id, record.attempt_id
        if not rollout_id or not attempt_id:
            logger.warning("a call without a rollout is not recorded: %s", record.attributes)
            return nowhere
        try:
            for each in filter(None, (record, raw_request(record))):
                number = await self._store.get_next_span_sequence_id(rollout_id, attempt_id)
                await self._store.add_span(_owned(each, rollout_id, attempt_id, number))
        except StoreError as error:
            raise PublishError(str(error)) from error
        return nowhere


def _owned(record: SpanRecord, rollout_id: str, attempt_id: str, number: int) -> Span:
    """The span, whose resource names its attempt and number, too."""
    from lightstream.store_views.stores.kafka.span_record import span_of_record

    names = {AGL_ROLLOUT_ID: rollout_id, AGL_ATTEMPT_ID: attempt_id, AGL_SPAN_SEQUENCE_ID: number}
    resource = record.resource_attributes | names
    return span_of_record(record.model_copy(update={"sequence_id": number, "resource_attributes": resource}))


def raw_request(record: SpanRecord) -> SpanRecord | None:
    """A call's request and answer as LiteLLM's tracing has them, in a span below the call's.

    Its attributes are ``llm.<provider>.<name>``, text as it is and all else in Python's notation. The provider is
    ``hosted_vllm`` where the server told token ids, else ``openai``. ``None``: the call has no answer.
    """
    call = record.llm_call
    if call is None or not call.request_json or not call.response_json:
        return None
    try:
        request, message = json.loads(call.request_json), json.loads(call.response_json)
    except ValueError:  # cut, where it was too large for a record
        return None
    if not isinstance(request, dict):
        return None
    choice: dict[str, Any] = {"index": call.choice_index, "message": message, "finish_reason": call.finish_reason}
    fields: dict[str, Any] = {"id": call.response_id, "model": call.response_model or call.requested_model}
    provider = "openai"
    if call.response_token_ids is not None:
        provider = "hosted_vllm"
        choice["token_ids"] = list(unpack_int32(call.response_token_ids))
        request["extra_body"] = {"return_token_ids": True}
        if call.prompt_token_ids is not None:
            fields["prompt_token_ids"] = list(unpack_int32(call.prompt_token_ids))
    values = request | fields | {"choices": [choice]}
    attributes = {
        f"llm.{provider}.{name}": value if isinstance(value, str) else repr(value)
        for name, value in values.items()
        if value is not None
    }
    update = {
        "name": RAW_REQUEST,
        "span_id": secrets.token_hex(8),
        "parent_id": record.span_id,
        "attributes": attributes,
        "llm_call": None,
    }
    return record.model_copy(update=update)
