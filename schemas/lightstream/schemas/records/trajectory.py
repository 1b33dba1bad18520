"""Trajectories: what the assembler makes of an attempt, and what algorithms consume."""

from __future__ import annotations

from pydantic import Field

from ._base import Record, RecordEnum
from .rollout import AttemptStatus, RolloutMode, RolloutStatus
from .span import PolicyVersionRun

__all__ = [
    "Drop",
    "DropReason",
    "Note",
    "NoteReason",
    "RewardMatch",
    "RewardRecord",
    "SourceRange",
    "Trajectory",
    "TripletRecord",
]


class DropReason(RecordEnum):
    """The reason why an LLM call did not become a triplet."""

    UNKNOWN = "unknown"
    NO_TOKEN_IDS = "no_token_ids"
    EMPTY_RESPONSE = "empty_response"
    LOGPROBS_LENGTH_MISMATCH = "logprobs_length_mismatch"
    BAD_TOKEN_IDS = "bad_token_ids"
    BAD_LOGPROBS = "bad_logprobs"
    CALL_FAILED = "call_failed"
    DUPLICATE_CALL = "duplicate_call"
    CONFLICTING_SPAN = "conflicting_span"
    ATTEMPT_NOT_FINAL = "attempt_not_final"
    ATTEMPT_REFUSED = "attempt_refused"
    BAD_REWARD = "bad_reward"
    LATE = "late"
    NO_ROLLOUT = "no_rollout"
    TOO_LARGE = "too_large"
    INSIDE_REWARD = "inside_reward"
    AGENT_NOT_SELECTED = "agent_not_selected"


class NoteReason(RecordEnum):
    """An oddity of an attempt's spans that costs it neither a call nor a reward."""

    UNKNOWN = "unknown"
    PARENT_CYCLE = "parent_cycle"
    MISSING_PARENT = "missing_parent"
    MISSING_TIME = "missing_time"
    JOINED_CALL = "joined_call"
    UNMATCHED_LINK = "unmatched_link"
    UNATTRIBUTED_CALL = "unattributed_call"


class RewardMatch(RecordEnum):
    """The rule that matched a reward to its call; ``none``: it names a call that is not in the attempt."""

    UNKNOWN = "unknown"
    LINK = "link"
    LOG_ORDER = "log_order"
    TRAJECTORY = "trajectory"
    NONE = "none"


class RewardRecord(Record):
    """One reward of an attempt. ``call_index`` is the call it was matched to, ``None`` for the whole trajectory.

    A reward of several dimensions is several records with one ``span_id``.

    Attributes:
        name: name of the reward; empty where it has none.
        value: the reward.
        span_id: span that brought the reward (16 hex digits).
        call_index: number of the call that the reward was matched to; ``None``: it is for the whole trajectory.
        match: how it found its call: ``link``, ``log_order``, ``trajectory``, or ``none`` (it rewards nothing).
        dimension: number of the dimension; 0 counts as the reward, the others are kept with it.
    """

    name: str = ""
    value: float
    span_id: str
    call_index: int | None = None
    match: RewardMatch = RewardMatch.TRAJECTORY
    trace_id: str = ""
    dimension: int = 0
    source_offset: int = -1


class Drop(Record):
    """An LLM call, or a reward, that did not become training data, and why.

    Attributes:
        span_id: span of the call or the reward (16 hex digits); empty where it has none.
        is_llm_call: true for an LLM call, false for a reward or for a span that repeats a known call.
        reason: why; the codes are listed under Reasons.
        detail: more about the reason, in words.
    """

    span_id: str
    trace_id: str = ""
    response_id: str | None = None
    is_llm_call: bool = True
    reason: DropReason
    detail: str = ""
    choice_index: int = 0
    source_offset: int = -1


class Note(Record):
    """Something odd that cost nothing: ``count`` spans, of which ``span_id`` is the first in the log.

    Attributes:
        reason: what was odd; the codes are listed under Reasons.
        span_id: first of the spans in the log (16 hex digits).
        count: how many spans it was seen on.
        detail: more about it, in words.
    """

    reason: NoteReason
    span_id: str
    count: int = 1
    detail: str = ""


class TripletRecord(Record):
    """One LLM call as training data (prompt, response, reward).

    Arrays are packed: P token ids of the prompt, and R token ids, log-probabilities and mask values of the response.

    Attributes:
        call_index: number of the call within its attempt, from 0.
        span_id: span of the call (16 hex digits).
        agent_name: agent that made the call, where its spans name one.
        model: model that answered.
        policy_version: version of the policy that sampled the response; of its first token, where there were several.
        policy_version_runs: which version sampled which tokens, where there were several, as JSON; empty: one sampled
            all.
        prompt_token_ids: token ids of the prompt (int32).
        response_token_ids: token ids of the response (int32).
        response_logprobs: log-probability of each response token (float32); ``None`` where they are unknown.
        response_mask: 1 for each response token that the policy sampled, else 0 (uint8).
        reward: what credit assignment gave the call; ``None`` where there was no reward (a missing one is not 0).
        start_unix_nano: when the call began.
        end_unix_nano: when the call ended.
        dialect: reader of span attributes that recognised the call.
        joined_span_ids: other spans that report the same call.
        field_sources: fields that were found elsewhere than on the call's own span (field to ``span_id:place``), as
            JSON.
    """

    call_index: int
    span_id: str
    trace_id: str
    response_id: str | None = None
    agent_name: str | None = None
    model: str = ""
    policy_version: int | None = None
    prompt_token_ids: bytes
    response_token_ids: bytes
    response_logprobs: bytes | None = None
    response_mask: bytes
    reward: float | None = None
    finish_reason: str | None = None
    start_unix_nano: int = 0
    end_unix_nano: int = 0
    source_offset: int = -1
    choice_index: int = 0
    dialect: str = ""
    joined_span_ids: list[str] = Field(default_factory=list[str])
    field_sources: dict[str, str] = Field(default_factory=dict[str, str])
    policy_version_runs: list[PolicyVersionRun] = Field(default_factory=list[PolicyVersionRun])


class SourceRange(Record):
    """The place of an attempt in ``spans``: partition, and first and last offset (both inclusive).

    Attributes:
        partition: partition of ``spans`` that holds the attempt.
        first_offset: offset in ``spans`` of the attempt's first record.
        last_offset: offset in ``spans`` of the attempt's closing record, or of the last late span of this revision.
    """

    partition: int = -1
    first_offset: int = -1
    last_offset: int = -1


class Trajectory(Record):
    """``trajectories``: an attempt, assembled. Key: ``group_id``, else ``rollout_id``. Made by the assembler.

    Identity: (``rollout_id``, ``attempt_id``, ``revision``); a record with the same identity is the same trajectory.
    Where ``payload_url`` is set, the whole is in a file there (:mod:`lightstream.runtime.large_records`), and the
    record has no input, rewards, triplets, drops and notes.

    Attributes:
        resources_id: version of the resources that the rollout is pinned to; ``None``: it was not pinned.
        status: how the attempt ended.
        reward: reward of the whole trajectory; ``None`` where there was none.
        credit: rule that gave each call its reward.
        reward_match: rule that matched rewards without a link.
        notes: oddities of its spans that cost neither a call nor a reward; the codes are listed under Reasons.
        span_count: how many spans the attempt has.
        call_count: how many LLM calls it has: as many as triplets and dropped calls together.
        opened_unix_nano: when the attempt began.
        closed_unix_nano: when the attempt was closed.
        full_from_offset: offset of the first span that was left out because the attempt had too many; -1: none was.
        payload_url: file that holds a trajectory too large for a record; empty for all others.
        payload_sha256: SHA-256 of that file.
        payload_size_bytes: size of that file in bytes.
    """

    rollout_id: str
    attempt_id: str
    attempt_sequence: int
    revision: int = Field(default=0, ge=0)
    run_id: str = ""
    mode: RolloutMode
    group_id: str | None = None
    group_size: int = 1
    resources_id: str | None = None
    input_json: str = "null"
    status: AttemptStatus
    rollout_status: RolloutStatus
    final: bool
    reward: float | None = None
    rewards: list[RewardRecord] = Field(default_factory=list[RewardRecord])
    credit: str = ""
    reward_match: str = ""
    triplets: list[TripletRecord] = Field(default_factory=list[TripletRecord])
    drops: list[Drop] = Field(default_factory=list[Drop])
    notes: list[Note] = Field(default_factory=list[Note])
    span_count: int = 0
    call_count: int = 0
    error_type: str | None = None
    error_message: str | None = None
    source: SourceRange = SourceRange()
    opened_unix_nano: int = 0
    closed_unix_nano: int = 0
    full_from_offset: int = -1
    payload_url: str = ""
    payload_sha256: str = ""
    payload_size_bytes: int = 0
