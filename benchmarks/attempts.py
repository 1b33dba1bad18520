"""Records of attempts for benchmarks of the worker: events, marks and LLM spans of 640 token ids."""

from __future__ import annotations

import time

from lightstream.schemas.packing import pack_float32, pack_int32
from lightstream.schemas.records import (
    AttemptChanges,
    AttemptClosed,
    AttemptOpened,
    AttemptStatus,
    EventKind,
    LlmCall,
    RolloutEvent,
    RolloutSpec,
    RolloutStatus,
    SpanRecord,
)

PROMPT = pack_int32(range(1000, 1512))
RESPONSE = pack_int32(range(2000, 2128))
LOGPROBS = pack_float32([-0.5] * 128)
"""640 token ids a span."""

SPANS_PER_ATTEMPT = 4


def events(rollout_id: str) -> tuple[RolloutEvent, RolloutEvent, RolloutEvent]:
    """Enqueued, started, ended."""
    now = time.time_ns()
    spec = RolloutSpec(rollout_id=rollout_id, input_json='{"question": "what is 2 + 2?"}', enqueued_unix_nano=now)
    attempt_id = f"{rollout_id}-a1"
    return (
        RolloutEvent(
            event_id=f"{rollout_id}:enqueued",
            kind=EventKind.ENQUEUED,
            rollout_id=rollout_id,
            occurred_unix_nano=now,
            rollout=spec,
        ),
        RolloutEvent(
            event_id=f"{attempt_id}:started",
            kind=EventKind.ATTEMPT_STARTED,
            rollout_id=rollout_id,
            occurred_unix_nano=now,
            attempt_id=attempt_id,
            attempt_sequence=1,
        ),
        RolloutEvent(
            event_id=f"{attempt_id}:ended",
            kind=EventKind.ATTEMPT_UPDATED,
            rollout_id=rollout_id,
            occurred_unix_nano=now,
            attempt_id=attempt_id,
            attempt_changes=AttemptChanges(status=AttemptStatus.SUCCEEDED),
        ),
    )


def attempt_opened(spec: RolloutSpec, attempt_id: str) -> AttemptOpened:
    return AttemptOpened(rollout=spec, attempt_id=attempt_id, attempt_sequence=1, opened_unix_nano=1)


def attempt_closed(rollout_id: str, attempt_id: str) -> AttemptClosed:
    return AttemptClosed(
        rollout_id=rollout_id,
        attempt_id=attempt_id,
        attempt_sequence=1,
        status=AttemptStatus.SUCCEEDED,
        rollout_status=RolloutStatus.SUCCEEDED,
        final=True,
        closed_unix_nano=2,
    )


def span(rollout_id: str, attempt_id: str, number: int) -> SpanRecord:
    return SpanRecord(
        rollout_id=rollout_id,
        attempt_id=attempt_id,
        trace_id=f"{number:032x}",
        span_id=f"{number + 1:016x}",
        name="chat.completion",
        start_unix_nano=number,
        end_unix_nano=number + 1,
        llm_call=LlmCall(
            response_id=f"chatcmpl-{number}",
            requested_model="policy",
            response_model="policy@1",
            policy_version=1,
            prompt_token_ids=PROMPT,
            response_token_ids=RESPONSE,
            response_logprobs=LOGPROBS,
            finish_reason="stop",
            http_status=200,
            request_json='{"messages": [{"role": "user", "content": "what is 2 + 2?"}]}',
            response_json='{"role": "assistant", "content": "4"}',
        ),
    )
