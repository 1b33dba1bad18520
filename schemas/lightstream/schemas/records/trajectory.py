"""Trajectories: what the assembler makes of an attempt, and what algorithms consume."""

from __future__ import annotations

from pydantic import Field

from ._base import Record, RecordEnum
from .rollout import AttemptStatus, RolloutMode, RolloutStatus

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
    """Why an LLM call did not become a triplet."""

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
    """What was odd about an attempt's spans without costing it a call or a reward."""

    UNKNOWN = "unknown"
    PARENT_CYCLE = "parent_cycle"
    MISSING_PARENT = "missing_parent"
    MISSING_TIME = "missing_time"
    JOINED_CALL = "joined_call"
    UNMATCHED_LINK = "unmatched_link"
    UNATTRIBUTED_CALL = "unattributed_call"


class RewardMatch(RecordEnum):
    """How a reward found its call; ``none``: it names a call that is not in the attempt, and rewards nothing."""

    UNKNOWN = "unknown"
    LINK = "link"
    LOG_ORDER = "log_order"
    TRAJECTORY = "trajectory"
    NONE = "none"


class RewardRecord(Record):
    """One reward of an attempt. ``call_index`` is the call it was matched to, ``None`` for the whole trajectory.

    A reward of several dimensions is several records with one ``span_id``; ``dimension`` 0 is the one that counts as
    the reward, the others are kept beside it.
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

    ``source_offset`` is where its span lies in ``spans``; a span that reports several choices is told apart by
    ``choice_index``.
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
    """Something odd that cost nothing: ``count`` spans, of which ``span_id`` is the first in the log."""

    reason: NoteReason
    span_id: str
    count: int = 1
    detail: str = ""


class TripletRecord(Record):
    """One LLM call as training data (prompt, response, reward).

    ``prompt_token_ids`` int32 (P,), ``response_token_ids`` int32 (R,), ``response_logprobs`` float32 (R,) or ``None``,
    ``response_mask`` uint8 (R,): 1 where the token was sampled by the policy. All R tokens were sampled by
    ``policy_version``. ``reward`` is what credit assignment gave this call; ``None`` is missing, never 0.0.

    ``dialect`` names the reader that found the call, ``joined_span_ids`` the other spans that report the same call, and
    ``field_sources`` where a field was found (field -> ``span_id:place``) when that is not the call's own span.
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


class SourceRange(Record):
    """Where in ``spans`` an attempt lies: partition, and first and last offset (both inclusive).

    The last is that of the closing record, or of the last late span of a revision.
    """

    partition: int = -1
    first_offset: int = -1
    last_offset: int = -1


class Trajectory(Record):
    """``trajectories``: an attempt, assembled. Key: ``group_id``, else ``rollout_id``. Made by the assembler.

    Identity: (``rollout_id``, ``attempt_id``, ``revision``); a record with the same identity is the same trajectory.
    ``reward`` is the reward of the whole trajectory, ``None`` when there was none. ``final`` trajectories, exactly
    one a rollout, are what groups of ``group_size`` count; the others only tell where their calls went.
    ``credit`` names the rule that gave each triplet its reward, ``reward_match`` the one for rewards without a link.
    ``call_count`` counts LLM calls: as many as triplets and drops of LLM calls together.

    ``revision`` ``n`` has the first ``n`` late spans that changed anything, besides all of before; some numbers may be
    left out, and the highest counts. Where ``payload_url`` is set, the whole is in a file there
    (:mod:`lightstream.schemas.large_records`), and the record has no input, rewards, triplets, drops and notes.
    ``full_from_offset`` is where the first span lies that was left out because the attempt had too many; -1: none was.
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
