"""The records that logs of runs are made of: rollouts, calls, rewards and versions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lightstream.schemas.packing import pack_float32, pack_int32
from lightstream.schemas.records import (
    AttemptClosed,
    AttemptOpened,
    AttemptState,
    AttemptStatus,
    EventKind,
    LlmCall,
    Record,
    ResourcesRecord,
    RolloutSpec,
    RolloutState,
    RolloutStatus,
    SpanRecord,
    Verdict,
    VerdictOutcome,
)
from lightstream.schemas.topics import (
    RESOURCES,
    ROLLOUTS,
    SPANS,
    TRAJECTORIES,
    Topic,
)
from lightstream.stream_processors.core.assembly import Assembler
from lightstream.trainers.algorithms.verl import VERL
from lightstream.trainers.run.identity import OPTIONS

SECOND = 1_000_000_000


@dataclass
class Log:
    """One partition per topic, and the assembler at work."""

    records: list[tuple[Topic, str, Record]] = field(default_factory=list[tuple[Topic, str, Record]])
    spans: int = 0
    assembler: Assembler = field(default_factory=lambda: Assembler(partition=0))

    def write(self, topic: Topic, key: str, record: Record) -> None:
        self.records.append((topic, key, record))

    def span(self, record: SpanRecord | AttemptOpened | AttemptClosed, key: str) -> None:
        """Log a record of ``spans``, and the trajectory that it completes."""
        self.write(SPANS, key, record)
        for trajectory in self.assembler.on_record(record, self.spans):
            self.write(TRAJECTORIES, trajectory.group_id or trajectory.rollout_id, trajectory)
        self.spans += 1


def log_rollout(
    log: Log, spec: RolloutSpec, spans: Sequence[SpanRecord], at: int, *, failed: bool = False, error: str = ""
) -> None:
    """Log an attempt with these spans, and the final state."""
    attempt_id, key = f"{spec.rollout_id}-a1", spec.rollout_id
    status = AttemptStatus.FAILED if failed else AttemptStatus.SUCCEEDED
    end = RolloutStatus.FAILED if failed else RolloutStatus.SUCCEEDED
    told: dict[str, Any] = (
        {"error_type": "ZeroDivisionError", "error_message": error or "division by zero"} if failed else {}
    )
    log.span(
        AttemptOpened(
            rollout=spec, attempt_id=attempt_id, attempt_sequence=1, worker_id="runner-busy", opened_unix_nano=at
        ),
        key,
    )
    for span in spans:
        log.span(span, key)
    closed = AttemptClosed(
        rollout_id=key,
        attempt_id=attempt_id,
        attempt_sequence=1,
        status=status,
        rollout_status=end,
        final=True,
        closed_unix_nano=at + 5 * SECOND,
        **told,
    )
    log.span(closed, key)
    attempt = AttemptState(
        attempt_id=attempt_id,
        sequence=1,
        status=status,
        worker_id="runner-busy",
        started_unix_nano=at,
        ended_unix_nano=at + 5 * SECOND,
        **told,
    )
    log.write(ROLLOUTS, key, state_record(spec, end, at + 5 * SECOND, attempt))


def state_record(spec: RolloutSpec, status: RolloutStatus, at: int, attempt: AttemptState | None) -> RolloutState:
    verdict = Verdict(event_id="e", kind=EventKind.ENQUEUED, outcome=VerdictOutcome.APPLIED)
    return RolloutState(
        rollout=spec,
        status=status,
        attempts=[attempt] if attempt else [],
        updated_unix_nano=at,
        ended_unix_nano=at if attempt else None,
        source_offset=0,
        verdict=verdict,
    )


def log_version(log: Log, run: str, version: int, at: int, steps: int) -> None:
    llm = {"resource_type": "proxy_llm", "endpoint": "http://127.0.0.1:4000/v1", "model": f"policy@{version}"}
    prompt = {
        "resource_type": "prompt_template",
        "template": "Use the tool.\nAnswer with the number alone.",
        "engine": "f-string",
    }
    record = ResourcesRecord(
        resources_id=f"{run}-v{version}",
        version=version,
        run_id=run,
        resources={"main_llm": json.dumps(llm), "instruction": json.dumps(prompt)},
        model=f"policy@{version}",
        checkpoint_url=f"/checkpoints/{run}/step-{version:06d}",
        made_with={OPTIONS: VERL(model="policy", steps=steps).as_json()} if version == 0 else {},
        created_unix_nano=at,
    )
    log.write(RESOURCES, record.resources_id, record)


def span_ids(spec: RolloutSpec, number: int) -> dict[str, Any]:
    return {
        "rollout_id": spec.rollout_id,
        "attempt_id": f"{spec.rollout_id}-a1",
        "trace_id": hashlib.md5(spec.rollout_id.encode(), usedforsecurity=False).hexdigest(),
        "span_id": f"{number:016x}",
    }


def span_record(
    spec: RolloutSpec, number: int, name: str, at: int, lasts: int, *, parent: int | None = None, **fields: Any
) -> SpanRecord:
    over: dict[str, Any] = {"parent_id": None if parent is None else f"{parent:016x}"}
    return SpanRecord(
        **span_ids(spec, number), **over, name=name, start_unix_nano=at, end_unix_nano=at + lasts, **fields
    )


def reward_record(spec: RolloutSpec, number: int, value: float, at: int, name: str = "correct") -> SpanRecord:
    told = {"agentlightning.reward.0.name": name, "agentlightning.reward.0.value": value}
    return span_record(spec, number, "agentlightning.annotation", at, 20_000, parent=1, attributes=told)


def call_record(
    spec: RolloutSpec,
    number: int,
    parent: int,
    at: int,
    messages: Sequence[Any],
    answer: dict[str, Any],
    prompt: Sequence[int],
    response: Sequence[int],
    version: int,
    ids: bool,
) -> SpanRecord:
    tokens: dict[str, Any] = {
        "prompt_token_ids": pack_int32(prompt),
        "response_token_ids": pack_int32(response),
        "response_logprobs": pack_float32([-0.05 - 0.7 * (place % 4) for place in range(len(response))]),
    }
    text = answer["content"]
    if text and len(response) == 3:
        tokens |= {"response_tokens_text": text, "response_token_ends": pack_int32([1, 2, len(text)])}
    call = LlmCall(
        response_id=f"{spec.rollout_id}-{number}"[:200],
        requested_model=f"policy@{version}",
        response_model=f"policy@{version}",
        policy_version=version,
        http_status=200,
        finish_reason="stop",
        request_json=json.dumps({"model": f"policy@{version}", "messages": list(messages)}),
        response_json=json.dumps(answer),
        **(tokens if ids else {}),
    )
    return span_record(spec, number, "chat.completion", at, 6 * SECOND // 5, parent=parent, llm_call=call)
