"""Explains why a rollout did or did not train: each call's fate, each reward's match, each break between segments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from lightstream.schemas.errors import NotFoundError, QueryError
from lightstream.schemas.packing import pack_int32
from lightstream.schemas.records import TripletRecord
from lightstream.stream_processors.core.segments import Segment, merge_segments

from .sql_literal import sql_literal

AskRows: TypeAlias = Callable[[str], list[dict[str, Any]]]
"""Runs one SELECT on the view; rows by column name."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """All that the log says about one rollout. Rows are by column name, in the order in which things happened.

    Attributes:
        rollout: its row of the view ``rollouts``.
        conclusion: one sentence: in which steps it trained, or why it did not.
        reason_code: code of why it did not, as in the view ``why_not_trained``; empty while it is not finished, and
            where it trained.
        next_step: what to do about that.
        attempts, calls, rewards, dropped, shared: rows of the views ``attempts``, ``llm_calls``, ``rewards``,
            ``dropped``, ``shared_spans``.
        notes: what was odd about its attempts, from the view ``trajectories``: why a reward is matched to nothing, say.
        segments: the final trajectory's calls, merged where a prompt continues the previous ids exactly.
    """

    rollout: dict[str, Any]
    conclusion: str
    reason_code: str
    next_step: str
    attempts: list[dict[str, Any]]
    calls: list[dict[str, Any]]
    rewards: list[dict[str, Any]]
    dropped: list[dict[str, Any]]
    shared: list[dict[str, Any]]
    notes: list[dict[str, Any]]
    segments: list[Segment]


def explain(ask: AskRows, rollout_id: str) -> Explanation:
    """Collect all facts about a rollout.

    Raises:
        NotFoundError: the view has no such rollout; says so where it was deleted with its run.
        QueryError, ServiceUnavailableError: as ``ask`` raises them.
    """
    answer = ask(_statement(rollout_id))
    if not answer:
        raise QueryError(
            f"the record of rollout {rollout_id} is larger than an answer of the view may be.",
            next_step="Ask the views attempts, llm_calls, dropped and rewards for parts of it.",
        )
    rows = {name: _in_order(answer[0][name]) for name in _PARTS}
    rollouts, reasons, trained = rows["rollouts"], rows["reasons"], rows["trained"]
    if not rollouts:
        for deleted in ask(_DELETED.format(sql_literal(rollout_id))):
            raise NotFoundError(
                f"Rollout {rollout_id} was deleted with its run {deleted['run_id']!r} at {deleted['at']} UTC",
                next_step="Nothing is known of it any more; a backup from before may have it.",
            )
        raise NotFoundError(
            f"Rollout {rollout_id} not found",
            next_step='`lightstream sql "SELECT rollout_id, status FROM rollouts LIMIT 10"` lists some.',
        )
    return Explanation(
        rollout=rollouts[0],
        conclusion=_conclusion(rollouts[0]["status"], trained, reasons),
        reason_code=reasons[0]["reason_code"] if reasons else "",
        next_step=reasons[0]["next_step"] if reasons else "",
        attempts=rows["attempts"],
        calls=rows["calls"],
        rewards=rows["rewards"],
        dropped=rows["dropped"],
        shared=rows["shared"],
        notes=rows["notes"],
        segments=merge_segments([_triplet(row) for place in rows["final"] for row in ask(_triplets_at(**place))]),
    )


_DELETED = """
SELECT run_id, strftime(make_timestamp_ns(deleted_unix_nano), '%Y-%m-%d %H:%M') AS at
FROM rollouts_deleted JOIN deletions_raw USING (log_offset) WHERE rollout_id = {} ORDER BY log_offset DESC LIMIT 1
"""
_NOTES = "(SELECT rollout_id, attempt_id, attempt_sequence, unnest(notes) AS note FROM trajectories)"
_LOST = "attempt_id, span_id, is_llm_call, reason, detail, log_partition, log_offset"
_OF_CALL = """
    attempt_id, span_id, response_id, choice_index AS choice, fate, reason, detail,
    coalesce(response_model, requested_model) AS model, policy_version AS policy,
    prompt_token_count AS prompt_tokens, response_token_count AS response_tokens, finish_reason, seconds,
    start_unix_nano, log_partition, log_offset
"""

_PARTS: Mapping[str, tuple[str, str, str]] = {
    "rollouts": ("rollouts", "*", "rollout_id"),
    "trained": ("trained", "step, trainer_id, triplet_count, not_trained", "step"),
    "reasons": ("why_not_trained", "reason_code, reason, next_step", "reason_code"),
    "attempts": (
        "attempts",
        "attempt_id, attempt_sequence, status, final, worker_id, seconds, error_type, error_message",
        "attempt_sequence",
    ),
    "calls": ("llm_calls", _OF_CALL, "start_unix_nano, choice_index"),
    "rewards": (
        "rewards",
        "attempt_id, name, dimension, value, match, link, call_index, span_id, source_partition, source_offset",
        "source_offset, dimension",
    ),
    "dropped": ("dropped", _LOST, "log_partition, log_offset"),
    "shared": ("shared_spans", _LOST, "log_partition, log_offset"),
    "notes": (
        _NOTES,
        "attempt_id, note.reason AS reason, note.span_id AS span_id, note.count AS count, note.detail AS detail",
        "attempt_sequence, note.reason",
    ),
    "final": ("(FROM trajectories WHERE final)", "log_partition, log_offset", "log_offset"),
}
"""Part of an explanation -> what is read, which columns of it, and their order."""


def _statement(rollout_id: str) -> str:
    """One statement for all parts, each a column with a list of its rows, so that they are of one moment."""
    of_it = f"WHERE rollout_id = {sql_literal(rollout_id)}"
    lists = [
        f"(SELECT list(found) FROM (SELECT row_number() OVER (ORDER BY {order}) AS place, {columns} "  # noqa: S608  # ours
        f"FROM {view} {of_it}) AS found) AS {name}"
        for name, (view, columns, order) in _PARTS.items()
    ]
    return f"SELECT {', '.join(lists)}"


def _triplets_at(log_partition: int, log_offset: int) -> str:
    """Of one record, which never changes, so that it fits the rest whenever it is read; and maybe large."""
    return (
        "SELECT call_index, span_id, trace_id, agent_name, policy_version, prompt_token_ids, response_token_ids, "  # noqa: S608  # numbers
        f"response_mask, reward FROM triplets_raw WHERE log_partition = {log_partition} AND log_offset = {log_offset} "
        "ORDER BY call_index"
    )


def _in_order(rows: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    ordered = sorted(rows or [], key=lambda row: int(row["place"]))
    return [{name: value for name, value in row.items() if name != "place"} for row in ordered]


def _conclusion(status: str, trained: list[dict[str, Any]], reasons: list[dict[str, Any]]) -> str:
    if trained:
        return "; ".join(
            f"it trained in step {row['step']} of {row['trainer_id']} ({_count(row['triplet_count'], 'call')}"
            f"{_others(row['not_trained'])})"
            for row in trained
        )
    if reasons:
        return str(reasons[0]["reason"])
    return "it waits for a Runner" if status in ("queuing", "requeuing") else "it is still running"


def _others(not_trained: Mapping[str, int]) -> str:
    """The calls that had no weight."""
    reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(not_trained.items()))
    return f"; not trained: {reasons}" if reasons else ""


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _triplet(row: dict[str, Any]) -> TripletRecord:
    """Enough of a triplet to merge it; log-probabilities are left out."""
    return TripletRecord(
        call_index=row["call_index"],
        span_id=row["span_id"],
        trace_id=row["trace_id"],
        agent_name=row["agent_name"],
        policy_version=row["policy_version"],
        prompt_token_ids=pack_int32(row["prompt_token_ids"]),
        response_token_ids=pack_int32(row["response_token_ids"]),
        response_mask=bytes(row["response_mask"]),
        reward=row["reward"],
    )
