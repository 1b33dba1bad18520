"""Trajectories: attempts as the assembler puts them together, and as algorithms consume them."""

from __future__ import annotations

from pydantic import Field

from ._base import Record, RecordEnum
from .rollout import AttemptStatus, RolloutMode, RolloutStatus
from .span import PolicyVersionRun


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
    IMAGE_NOT_RECORDED = "image_not_recorded"


class NoteReason(RecordEnum):
    """An oddity of an attempt's spans that costs it neither a call nor a reward."""

    UNKNOWN = "unknown"
    PARENT_CYCLE = "parent_cycle"
    MISSING_PARENT = "missing_parent"
    MISSING_TIME = "missing_time"
    JOINED_CALL = "joined_call"
    UNMATCHED_LINK = "unmatched_link"
    UNATTRIBUTED_CALL = "unattributed_call"
    INCOMPLETE_MESSAGES = "incomplete_messages"
    CONTENT_LEFT_OUT = "content_left_out"


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
    """

    name: str = ""
    """Name of the reward; empty where it has none."""
    value: float
    """The reward."""
    span_id: str
    """Span that brought the reward (16 hex digits)."""
    call_index: int | None = None
    """Number of the call that the reward was matched to; ``None``: it is for the whole trajectory."""
    match: RewardMatch = RewardMatch.TRAJECTORY
    """Rule by which it found its call: ``link``, ``log_order``, ``trajectory``, or ``none`` (it rewards nothing)."""
    trace_id: str = ""
    dimension: int = 0
    """Number of the dimension; 0 counts as the reward, the others are kept with it."""
    source_offset: int = -1
    link: str = ""
    """What it says it is for, such as ``gen_ai.response.id=resp-1``; empty where it does not say."""


class Drop(Record):
    """An LLM call, or a reward, that did not become training data, and why."""

    span_id: str
    """Span of the call or the reward (16 hex digits); empty where it has none."""
    trace_id: str = ""
    response_id: str | None = None
    is_llm_call: bool = True
    """True for an LLM call, false for a reward or for a span that repeats a known call."""
    reason: DropReason
    """Reason; the codes are listed under Reasons."""
    detail: str = ""
    """More about the reason, in words."""
    choice_index: int = 0
    source_offset: int = -1
    call_index: int | None = None
    """Number of the call within its attempt, from 0, as rewards name it; ``None`` for what is no call of its own."""
    agent_name: str | None = None
    """Agent that made the call, where its spans name one."""
    model: str = ""
    """Model that answered, where that is known."""


class Note(Record):
    """Something odd that cost nothing: ``count`` spans; ``span_id`` is the first of them in the log."""

    reason: NoteReason
    """Reason of the note; the codes are listed under Reasons."""
    span_id: str
    """First of the spans in the log (16 hex digits)."""
    count: int = 1
    """Number of spans that it was seen on."""
    detail: str = ""
    """More about it, in words."""


class TripletRecord(Record):
    """One LLM call as training data (prompt, response, reward).

    Arrays are packed: P token ids of the prompt, and R token ids, log-probabilities and mask values of the response.
    """

    call_index: int
    """Number of the call within its attempt, from 0."""
    span_id: str
    """Span of the call (16 hex digits)."""
    trace_id: str
    response_id: str | None = None
    agent_name: str | None = None
    """Agent that made the call, where its spans name one."""
    model: str = ""
    """Model that answered."""
    policy_version: int | None = None
    """Version of the policy that sampled the response; of its first token, where there were several."""
    prompt_token_ids: bytes
    """Token ids of the prompt (int32)."""
    response_token_ids: bytes
    """Token ids of the response (int32)."""
    response_logprobs: bytes | None = None
    """Log-probability of each response token (float32); ``None`` where they are unknown."""
    response_mask: bytes
    """1 for each response token that the policy sampled, else 0 (uint8)."""
    reward: float | None = None
    """Reward that credit assignment gave the call; ``None`` where there was no reward (a missing one is not 0)."""
    finish_reason: str | None = None
    start_unix_nano: int = 0
    """Time at which the call began."""
    end_unix_nano: int = 0
    """Time at which the call ended."""
    source_offset: int = -1
    choice_index: int = 0
    dialect: str = ""
    """Reader of span attributes that recognised the call."""
    joined_span_ids: list[str] = Field(default_factory=list[str])
    """Other spans that report the same call."""
    field_sources: dict[str, str] = Field(default_factory=dict[str, str])
    """Fields that were found elsewhere than on the call's own span (field to ``span_id:place``), as JSON."""
    policy_version_runs: list[PolicyVersionRun] = Field(default_factory=list[PolicyVersionRun])
    """Versions by the tokens that each sampled, where there were several, as JSON; empty: one sampled all."""
    images: list[int] = Field(default_factory=list[int])
    """Images that the prompt shows, in their order: numbers of the trajectory's images, from 0."""
    resources_id: str | None = None
    """Version of the resources whose weights answered, as the model server says; ``None``: it does not."""
    sampling_json: str | None = None
    """Parameters of the request that decide how tokens are drawn (``temperature``, ``top_p``, …), as JSON; one that the
    request left out is not in it. ``null`` in JSON: nobody recorded the request. ``None``: assembled by a version that
    did not keep them."""


class SourceRange(Record):
    """The place of an attempt in ``spans``: partition, and first and last offset (both inclusive)."""

    partition: int = -1
    """Partition of ``spans`` that holds the attempt."""
    first_offset: int = -1
    """Offset in ``spans`` of the attempt's first record."""
    last_offset: int = -1
    """Offset in ``spans`` of the attempt's closing record, or of the last late span of this revision."""


class Trajectory(Record):
    """``trajectories``: an attempt, assembled. Key: ``group_id``, else ``rollout_id``. Made by the assembler.

    Identity: (``rollout_id``, ``attempt_id``, ``revision``); a record with the same identity is the same trajectory.
    Where ``payload_url`` is set, the whole is in a file there (:mod:`lightstream.runtime.large_records`), and the
    record has no input, rewards, triplets, images, drops and notes.
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
    """Version of the resources that the rollout is pinned to; ``None``: it was not pinned."""
    input_json: str = "null"
    status: AttemptStatus
    """Status that the attempt ended in."""
    rollout_status: RolloutStatus
    final: bool
    reward: float | None = None
    """Reward of the whole trajectory; ``None`` where there was none."""
    rewards: list[RewardRecord] = Field(default_factory=list[RewardRecord])
    credit: str = ""
    """Rule that gave each call its reward."""
    reward_match: str = ""
    """Rule that matched rewards without a link."""
    triplets: list[TripletRecord] = Field(default_factory=list[TripletRecord])
    drops: list[Drop] = Field(default_factory=list[Drop])
    notes: list[Note] = Field(default_factory=list[Note])
    """Oddities of its spans that cost neither a call nor a reward; the codes are listed under Reasons."""
    span_count: int = 0
    """Number of spans of the attempt."""
    call_count: int = 0
    """Number of its LLM calls: as many as triplets and dropped calls together."""
    error_type: str | None = None
    error_message: str | None = None
    source: SourceRange = SourceRange()
    opened_unix_nano: int = 0
    """Time at which the attempt began."""
    closed_unix_nano: int = 0
    """Time at which the attempt was closed."""
    revised_unix_nano: int = 0
    """Event time of this revision: the end of the attempt's last span, where that is after its close; 0: not known."""
    full_from_offset: int = -1
    """Offset of the first span that was left out because the attempt had too many; -1: none was."""
    payload_url: str = ""
    """File that holds a trajectory too large for a record; empty for all others."""
    payload_sha256: str = ""
    """SHA-256 of that file."""
    payload_size_bytes: int = 0
    """Size of that file in bytes."""
    images: list[bytes] = Field(default_factory=list[bytes])
    """Images that its triplets show, each once: files (PNG, JPEG, …) as they were sent."""
