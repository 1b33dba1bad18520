"""Records of calls: one span record per choice, made durable before the agent has its answer."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from itertools import accumulate
from typing import Any

from pydantic_core import to_json

from lightstream.runtime.clock import Clock
from lightstream.runtime.http.server import CLIENT_GONE
from lightstream.runtime.kafka import Outgoing, Position, Publisher
from lightstream.runtime.logs import logged_ids_of
from lightstream.schemas.attribute_names import RESEND_COUNT, TRUNCATED
from lightstream.schemas.both_ends import both_ends
from lightstream.schemas.codec import Codec
from lightstream.schemas.errors import LightstreamError, RecordError, RecordTooLargeError
from lightstream.schemas.packing import pack_float32, pack_int32
from lightstream.schemas.records import LlmCall, PolicyVersionRun, SpanKind, SpanRecord, SpanStatus
from lightstream.schemas.topics import SPANS

from .call import Call
from .capture import Choice

SPAN_NAME = "chat.completion"
SCOPE_NAME = "lightstream.producers.llm_proxy"

API_ATTRIBUTE = "lightstream.proxy.api"
"""The agent's dialect, for a translated call. The recorded request is the chat request that was made of it."""

UPSTREAM_ID_ATTRIBUTE = "lightstream.proxy.upstream_response_id"
"""The model server's id of an answer that the agent saw under another."""

NOT_ASKED_FOR_ATTRIBUTE = "lightstream.proxy.not_asked_for"
"""List of what the proxy did not ask the model server for (``name: reason``): token ids, log-probabilities."""

TRANSLATED = ("messages", "responses")

CUT_ORDER = (
    ("request_json",),
    ("response_json",),
    ("response_tokens_text", "response_token_ends"),
    ("prompt_token_ids", "response_token_ids", "response_logprobs"),
)
"""Fields in the order of cutting: texts follow from token ids, and a call without tokens cannot be trained on."""

TEXT_CHARS_MAX = 500
"""Of an error's text, in a record of which all else was cut."""


def _span_records(call: Call) -> list[SpanRecord]:
    """One record per choice; a single one without tokens where the call gave none.

    Token ids and log-probabilities that cannot be packed (beyond int32 or float32) are left out, and the record's
    status message says so.
    """
    choices = sorted(call.completion.choices.values(), key=lambda choice: choice.index) or [Choice(0)]
    request_json = call.request_body.decode("utf-8", errors="replace") or None
    return [_record(call, choice, request_json) for choice in choices]


def _smaller(record: SpanRecord) -> SpanRecord | None:
    """The record without the next field on the cutting list, or ``None`` if nothing is left to cut."""
    call = record.llm_call
    cut: list[str] = list(record.attributes.get(TRUNCATED, []))
    for names in CUT_ORDER if call is not None else ():
        if any(getattr(call, name) is not None for name in names):
            cut += [f"llm_call.{name}" for name in names]
            without = LlmCall.model_copy(call, update=dict.fromkeys(names)) if call is not None else None
            attributes = record.attributes | {TRUNCATED: cut}
            return record.model_copy(update={"llm_call": without, "attributes": attributes})
    if call is None or max(len(call.error_message or ""), len(record.status_message)) <= TEXT_CHARS_MAX:
        return None
    message = both_ends(call.error_message or "", TEXT_CHARS_MAX) or None
    kept = {
        "llm_call": LlmCall.model_copy(call, update={"error_message": message}),
        "status_message": both_ends(record.status_message, TEXT_CHARS_MAX),
        "attributes": {TRUNCATED: [*cut, "attributes"]},
    }
    return record.model_copy(update=kept)


def _record(call: Call, choice: Choice, request_json: str | None) -> SpanRecord:
    completion = call.completion
    notes: list[str] = [call.error_message] if call.error_message else []
    version, runs = _versions(call, choice)
    texts = choice.token_texts or []
    message = choice.message.recorded()
    has_texts = bool(texts) and len(texts) == len(choice.token_ids or ())
    llm_call = LlmCall(
        response_id=call.seen_response_id or completion.response_id,
        requested_model=call.requested_model,
        response_model=completion.model,
        policy_version=version,
        policy_version_runs=runs if len(runs) > 1 else [],
        resources_id=call.resources_id,
        prompt_token_ids=_packed(pack_int32, choice.prompt_token_ids or completion.prompt_token_ids, notes),
        response_token_ids=_packed(pack_int32, choice.token_ids, notes),
        response_logprobs=_packed(pack_float32, choice.logprobs, notes),
        choice_index=choice.index,
        finish_reason=choice.finish_reason,
        streamed=call.streams,
        http_status=call.http_status,
        error_message=call.error_message,
        request_json=request_json,
        response_json=to_json(message).decode() if message else None,
        response_tokens_text="".join(texts) if has_texts else None,
        response_token_ends=pack_int32(accumulate(map(len, texts))) if has_texts else None,
        sampling_json=call.sampling_json,
    )
    failed = call.error_message is not None
    return SpanRecord(
        rollout_id=call.caller.rollout_id,
        attempt_id=call.caller.attempt_id,
        trace_id=call.caller.trace_id,
        span_id=secrets.token_hex(8),
        parent_id=call.caller.parent_id,
        name=SPAN_NAME if call.dialect.is_sampled else call.dialect.api,
        kind=SpanKind.CLIENT,
        status=SpanStatus.ERROR if failed else SpanStatus.OK,
        status_message="; ".join(notes),
        start_unix_nano=call.started_unix_nano,
        end_unix_nano=call.ended_unix_nano,
        attributes=_attributes(call),
        scope_name=SCOPE_NAME,
        llm_call=llm_call,
    )


def _versions(call: Call, choice: Choice) -> tuple[int | None, list[PolicyVersionRun]]:
    """The version of a choice's first token, and all of them by token; none where the first is not known."""
    runs = choice.version_runs
    if call.policy_version is not None and (not runs or runs[0][0] > 0):
        runs = [(0, call.policy_version), *runs]
    if not runs or runs[0][0] > 0:
        return None, []
    return runs[0][1], [PolicyVersionRun(first_token=first, policy_version=version) for first, version in runs]


def _attributes(call: Call) -> dict[str, Any]:
    """OpenTelemetry's GenAI conventions, as far as they are known."""
    usage = call.completion.usage or {}
    values: dict[str, Any] = {
        "gen_ai.operation.name": "chat" if call.dialect.api in ("chat", *TRANSLATED) else call.dialect.api,
        "gen_ai.request.model": call.requested_model,
        "gen_ai.response.model": call.completion.model,
        "gen_ai.response.id": call.seen_response_id or call.completion.response_id,
        API_ATTRIBUTE: call.dialect.api if call.dialect.api in TRANSLATED else None,
        UPSTREAM_ID_ATTRIBUTE: call.completion.response_id if call.seen_response_id else None,
        "gen_ai.usage.input_tokens": usage.get("prompt_tokens"),
        "gen_ai.usage.output_tokens": usage.get("completion_tokens"),
    }
    values |= call.release.attributes if call.release is not None else {}
    values[RESEND_COUNT] = call.resend_count or None
    values[NOT_ASKED_FOR_ATTRIBUTE] = [f"{name}: {why}" for name, why in call.not_asked_for.items()] or None
    return {name: value for name, value in values.items() if value is not None}


def _packed(pack: Any, values: list[Any] | None, notes: list[str]) -> bytes | None:
    if values is None:
        return None
    try:
        packed: bytes = pack(values)
    except RecordError as error:
        notes.append(str(error))
        return None
    return packed


logger = logging.getLogger(__name__)


class CallRecorder:
    """Writes calls to the topic ``spans``.

    Args:
        publisher: makes records durable; bounds how long that may take.
        clock: time of a call's end.
        codec: encodes what goes out in place of a record that is too large.
        redact: takes out of records what must not be kept.
    """

    def __init__(
        self,
        publisher: Publisher,
        clock: Clock,
        codec: Codec | None = None,
        redact: Callable[[SpanRecord], SpanRecord] | None = None,
    ) -> None:
        self._redact = redact
        self._publisher = publisher
        self._codec = codec or Codec()
        self._clock = clock

    async def record(self, call: Call) -> None:
        """Write the call; returns once every choice of it is durable.

        Raises:
            PublishError: it did not become durable in the allowed time; the agent must not get the answer then.
            ServiceUnavailableError: no Kafka is named or running.
        """
        for future in self._send(call):
            await asyncio.wrap_future(future)

    def record_abandoned(self, call: Call) -> None:
        """Write the call of a client that has disconnected, without waiting; a failed delivery is logged."""
        call.http_status = CLIENT_GONE
        call.error_message = call.error_message or "the client disconnected before it had the answer"
        try:
            for future in self._send(call):
                future.add_done_callback(partial(_log_failure, call))
        except LightstreamError as error:
            _log_lost(call, error)

    def _send(self, call: Call) -> list[Future[Position]]:
        call.ended_unix_nano = self._clock.now_unix_nano()
        records = _span_records(call)
        if self._redact is not None:
            records = [self._redact(record) for record in records]
        return [self._publish(call.caller.key, record) for record in records]

    def _publish(self, key: str, record: SpanRecord) -> Future[Position]:
        while True:
            try:
                return self._publisher.publish(SPANS, key, record, instead=partial(self._instead, key, record))
            except RecordTooLargeError as error:
                cut = _cut(record, error)
                if cut is None:
                    raise
                record = cut

    def _instead(self, key: str, record: SpanRecord, error: RecordTooLargeError) -> Outgoing | None:
        """The record without its next field, for a topic that takes less than it did."""
        cut = _cut(record, error)
        if cut is None:
            return None
        return Outgoing(SPANS, key, self._codec.encode(cut), instead=partial(self._instead, key, cut))


def _cut(record: SpanRecord, error: RecordTooLargeError) -> SpanRecord | None:
    """The record with less in it, logged; ``None`` where nothing is left to cut."""
    cut = _smaller(record)
    if cut is not None:
        with logged_ids_of(record):
            logger.warning("a call of rollout %s was truncated: %s", record.rollout_id, error)
    return cut


def _log_failure(call: Call, future: Future[Position]) -> None:
    error = future.exception()
    if error is not None:
        _log_lost(call, error)


def _log_lost(call: Call, error: BaseException) -> None:
    with logged_ids_of(call.caller):
        logger.error("the call of a client that disconnected is lost: %s", error)
