"""One realistic record of every type, for the documentation, for readers in other languages, and for tests.

``python -m lightstream.schemas.codec.write_files`` stores each next to its schema, encoded (``.example.bin``,
single-object framing); those of earlier versions stay there and must decode forever.
"""

from __future__ import annotations

from typing import TypeVar

from .packing import pack_float32, pack_int32
from .records import (
    AttemptChanges,
    AttemptClosed,
    AttemptOpened,
    AttemptState,
    AttemptStatus,
    ConsumedTrajectory,
    DeadLetter,
    DeadLetterReason,
    Drop,
    DropReason,
    EventKind,
    GateCheck,
    GateCheckKind,
    GateOutcome,
    GateReport,
    GateSet,
    LearningWindow,
    LlmCall,
    PartitionOffset,
    Record,
    ReleaseAction,
    ReleaseChanged,
    ReleaseRule,
    ResourcesRecord,
    RewardMatch,
    RewardRecord,
    RolloutConfig,
    RolloutEvent,
    RolloutMode,
    RolloutSpec,
    RolloutState,
    RolloutStatus,
    RunDeleted,
    SourceRange,
    SpanEventRecord,
    SpanKind,
    SpanLinkRecord,
    SpanRecord,
    SpanStatus,
    TaskRequest,
    TaskRewards,
    TrainingStep,
    Trajectory,
    TripletRecord,
    Verdict,
    VerdictOutcome,
    WindowPosition,
    WorkerHeartbeat,
    WorkerStatus,
)

_SECOND = 1_000_000_000
_NOON = 1_790_000_000_000_000_000
_TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
_CALL_SPAN = "00f067aa0ba902b7"
_PROMPT = pack_int32([1, 41, 56, 86, 110, 2])
_RESPONSE = pack_int32([68, 2])
_ENDS = pack_int32([1, 11])
_LOGPROBS = pack_float32([-0.25, -0.0009765625])

_SPEC = RolloutSpec(
    rollout_id="run7-s3-g0-1",
    run_id="run7",
    mode=RolloutMode.TRAIN,
    input_json='{"question": "Find the prime factorization of 980."}',
    resources_id="run7-v2",
    group_id="run7-s3-g0",
    group_size=8,
    config=RolloutConfig(
        timeout_seconds=120.0,
        unresponsive_seconds=10.0,
        max_attempts=3,
        retry_condition=[AttemptStatus.UNRESPONSIVE, AttemptStatus.TIMEOUT],
    ),
    metadata_json='{"sample": 0}',
    enqueued_unix_nano=_NOON,
)
_ATTEMPT = "run7-s3-g0-1-a1-5f0c9a11"

EXAMPLES: tuple[Record, ...] = (
    TaskRequest(
        request_id="5c1f0a9be2d47733",
        worker_ids=["runner-1", ""],
        occurred_unix_nano=_NOON,
        stands_nanos=60 * _SECOND,
    ),
    RolloutEvent(
        event_id=f"{_ATTEMPT}:ended",
        kind=EventKind.ATTEMPT_UPDATED,
        rollout_id=_SPEC.rollout_id,
        occurred_unix_nano=_NOON + 2 * _SECOND,
        attempt_id=_ATTEMPT,
        attempt_sequence=1,
        worker_id="runner-1",
        attempt_changes=AttemptChanges(status=AttemptStatus.FAILED),
        error_type="ValueError",
        error_message="the tool answered nothing",
    ),
    RolloutState(
        rollout=_SPEC,
        status=RolloutStatus.RUNNING,
        attempts=[
            AttemptState(
                attempt_id=_ATTEMPT,
                sequence=1,
                status=AttemptStatus.RUNNING,
                worker_id="runner-1",
                started_unix_nano=_NOON + _SECOND,
                last_heartbeat_unix_nano=_NOON + _SECOND,
            )
        ],
        updated_unix_nano=_NOON + _SECOND,
        source_offset=4711,
        verdict=Verdict(event_id=f"{_ATTEMPT}:started", kind=EventKind.ATTEMPT_STARTED, outcome=VerdictOutcome.APPLIED),
    ),
    SpanRecord(
        rollout_id=_SPEC.rollout_id,
        attempt_id=_ATTEMPT,
        sequence_id=1,
        trace_id=_TRACE,
        span_id=_CALL_SPAN,
        parent_id="53995c3f42cd8ad8",
        name="chat policy@2",
        kind=SpanKind.CLIENT,
        status=SpanStatus.OK,
        start_unix_nano=_NOON + _SECOND,
        end_unix_nano=_NOON + _SECOND + 40_000_000,
        attributes={
            "gen_ai.request.model": "policy@2",
            "gen_ai.usage.input_tokens": 6,
            "temperature": 1.0,
            "stream": False,
            "nothing": None,
            "raw": b"\x00\xff",
            "ids": list(range(10)),
            "nested": {"tools": ["add_up", {"letter": "A"}, None]},
        },
        events=[SpanEventRecord(name="first_token", time_unix_nano=_NOON + _SECOND + 1_000_000, attributes={"n": 1})],
        links=[SpanLinkRecord(trace_id=_TRACE, span_id="53995c3f42cd8ad8", attributes={"kind": "retry_of"})],
        resource_attributes={"service.name": "tool-router"},
        scope_name="lightstream.llm_proxy",
        scope_version="0.1.0",
        flags=1,
        llm_call=LlmCall(
            response_id="chatcmpl-8d1f",
            requested_model="policy@2",
            response_model="policy@2",
            policy_version=2,
            resources_id="run7-v2",
            prompt_token_ids=_PROMPT,
            response_token_ids=_RESPONSE,
            response_logprobs=_LOGPROBS,
            finish_reason="stop",
            http_status=200,
            request_json='{"messages": [{"role": "user", "content": "Find the prime factorization of 980."}]}',
            response_json='{"role": "assistant", "content": "G"}',
            response_tokens_text="G<|im_end|>",
            response_token_ends=_ENDS,
            sampling_json='{"temperature": 1.0}',
        ),
    ),
    AttemptOpened(
        rollout=_SPEC,
        attempt_id=_ATTEMPT,
        attempt_sequence=1,
        worker_id="runner-1",
        opened_unix_nano=_NOON + _SECOND,
    ),
    AttemptClosed(
        rollout_id=_SPEC.rollout_id,
        attempt_id=_ATTEMPT,
        attempt_sequence=1,
        status=AttemptStatus.SUCCEEDED,
        rollout_status=RolloutStatus.SUCCEEDED,
        final=True,
        closed_unix_nano=_NOON + 2 * _SECOND,
    ),
    Trajectory(
        rollout_id=_SPEC.rollout_id,
        attempt_id=_ATTEMPT,
        attempt_sequence=1,
        run_id="run7",
        mode=RolloutMode.TRAIN,
        group_id="run7-s3-g0",
        group_size=8,
        resources_id="run7-v2",
        input_json=_SPEC.input_json,
        status=AttemptStatus.SUCCEEDED,
        rollout_status=RolloutStatus.SUCCEEDED,
        final=True,
        reward=1.0,
        rewards=[RewardRecord(name="reward", value=1.0, span_id="a2fb4a1d1a96d312", match=RewardMatch.TRAJECTORY)],
        credit="identical",
        triplets=[
            TripletRecord(
                call_index=0,
                span_id=_CALL_SPAN,
                trace_id=_TRACE,
                response_id="chatcmpl-8d1f",
                model="policy@2",
                policy_version=2,
                prompt_token_ids=_PROMPT,
                response_token_ids=_RESPONSE,
                response_logprobs=_LOGPROBS,
                response_mask=b"\x01\x01",
                reward=1.0,
                finish_reason="stop",
                start_unix_nano=_NOON + _SECOND,
                end_unix_nano=_NOON + _SECOND + 40_000_000,
                source_offset=9001,
                images=[0],
                resources_id="run7-v2",
                sampling_json='{"temperature": 1.0}',
            )
        ],
        drops=[
            Drop(
                span_id="b9c7c989f97918e1",
                trace_id=_TRACE,
                reason=DropReason.CALL_FAILED,
                detail="the LLM server answered 500",
            )
        ],
        span_count=4,
        call_count=2,
        source=SourceRange(partition=1, first_offset=8999, last_offset=9005),
        opened_unix_nano=_NOON + _SECOND,
        closed_unix_nano=_NOON + 2 * _SECOND,
        images=[b"\x89PNG\r\n\x1a\n"],
    ),
    ResourcesRecord(
        resources_id="run7-v2",
        version=2,
        run_id="run7",
        resources={
            "main_llm": '{"resource_type": "proxy_llm", "endpoint": "http://proxy:8080/v1", "model": "policy@2"}'
        },
        model="policy@2",
        checkpoint_url="file:///checkpoints/run7/step-2",
        created_unix_nano=_NOON,
    ),
    WorkerHeartbeat(
        worker_id="runner-1",
        kind="runner",
        host="node-3",
        pid=4242,
        status=WorkerStatus.BUSY,
        rollout_ids=[_SPEC.rollout_id],
        heartbeat_unix_nano=_NOON,
    ),
    TrainingStep(
        trainer_id="run7",
        run_id="run7",
        step=3,
        resources_id="run7-v3",
        checkpoint_url="file:///checkpoints/run7/step-3",
        consumed=[
            ConsumedTrajectory(
                rollout_id=_SPEC.rollout_id, attempt_id=_ATTEMPT, revision=0, group_id="run7-s3-g0", triplet_count=1
            )
        ],
        metrics={"reward/mean": 0.5, "logprob_diff_max": 1.5e-6},
        low_water=[PartitionOffset(topic="trajectories", partition=1, offset=77)],
        window=LearningWindow(
            number=3,
            start_unix_nano=_NOON,
            end_unix_nano=_NOON + 2 * _SECOND,
            watermark_unix_nano=_NOON + 3 * _SECOND,
            closed_at_unix_nano=_NOON + 4 * _SECOND,
            positions=[WindowPosition(partition=1, offset=79, kept_from=77, floor_unix_nano=_NOON + _SECOND)],
            members=2,
            left_out={"no_consent": 1},
            tasks=[TaskRewards(task="5f70bf18a0860070", count=1, total=0.5)],
        ),
        started_unix_nano=_NOON,
        ended_unix_nano=_NOON + 3 * _SECOND,
    ),
    DeadLetter(
        reason=DeadLetterReason.NOT_AVRO,
        detail="neither single-object nor Confluent framing: starts with 7b226e61",
        origin_topic="spans",
        origin_partition=1,
        origin_offset=9002,
        key=b"run7-s3-g0-1",
        value=b'{"name": "not avro"}',
        value_size=20,
        reported_by="assembler",
        observed_unix_nano=_NOON,
    ),
    RunDeleted(
        run_id="run7",
        positions=[PartitionOffset(topic="spans", partition=1, offset=9010)],
        deleted_unix_nano=_NOON + 9 * _SECOND,
    ),
    ReleaseChanged(
        release="support-agent",
        revision=2,
        action=ReleaseAction.OFFERED,
        stable="run7@6",
        candidate="run7@7",
        previous="run7@5",
        share=0.1,
        rules=[
            ReleaseRule(
                name="errors",
                sql="SELECT count(*) AS errors FROM release_calls WHERE release = $release AND model = $candidate "
                "AND started_unix_nano >= $since AND error_type IS NOT NULL HAVING count(*) > 5",
            )
        ],
        offered_unix_nano=_NOON + 9 * _SECOND,
        by="command line, ada",
        reason="better on the fixed set",
        changed_unix_nano=_NOON + 9 * _SECOND,
    ),
    GateReport(
        report_id="support-agent-5a1fd0c2b917",
        release="support-agent",
        stable="run7@6",
        candidate="run7@7",
        outcome=GateOutcome.PASSED,
        error_rate=0.01,
        checks=[
            GateCheck(
                task_set="fixed",
                figure="reward",
                kind=GateCheckKind.BETTER,
                tasks=80,
                stable_mean=0.61,
                candidate_mean=0.72,
                limit=0.0,
                probability=0.0004,
                passed=True,
            )
        ],
        sets=[GateSet(name="fixed", run_id="gate-support-agent-fixed-5a1fd0c2b917", digest="0b5e2f1d9a44", tasks=80)],
        notes=["fixed: cost is not known of every rollout, and is not checked"],
        by="command line, ada",
        created_unix_nano=_NOON + 8 * _SECOND,
    ),
)


R = TypeVar("R", bound=Record)


def example_of(record: type[R]) -> R:
    """The example of that type."""
    return next(example for example in EXAMPLES if isinstance(example, record))
