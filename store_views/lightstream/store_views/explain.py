"""Explains why a rollout did or did not train: each call's fate, each reward's match, each break between segments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from lightstream.schemas.errors import NotFoundError
from lightstream.schemas.packing import pack_int32
from lightstream.schemas.records import TripletRecord
from lightstream.stream_processors.core.segments import Segment, merge_segments

from .sql_literal import sql_literal

__all__ = ["AskRows", "Explanation", "explain"]

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
    """Collect what is known about a rollout.

    Raises:
        NotFoundError: the view has no such rollout.
        QueryError, ServiceUnavailableError: as ``ask`` raises them.
    """
    of_it = f"WHERE rollout_id = {sql_literal(rollout_id)}"
    rollouts = ask(f"SELECT * FROM rollouts {of_it}")  # noqa: S608  # quoted above
    if not rollouts:
        raise NotFoundError(
            f"Rollout {rollout_id} not found",
            next_step='`lightstream sql "SELECT rollout_id, status FROM rollouts LIMIT 10"` lists some.',
        )

    def rows(view: str, columns: str, order: str) -> list[dict[str, Any]]:
        return ask(f"SELECT {columns} FROM {view} {of_it} ORDER BY {order}")  # noqa: S608  # as above

    trained = rows("trained", "step, trainer_id, triplet_count, not_trained", "step")
    reasons = rows("why_not_trained", "reason_code, reason, next_step", "reason_code")
    return Explanation(
        rollout=rollouts[0],
        conclusion=_conclusion(rollouts[0]["status"], trained, reasons),
        reason_code=reasons[0]["reason_code"] if reasons else "",
        next_step=reasons[0]["next_step"] if reasons else "",
        attempts=rows(
            "attempts",
            "attempt_id, attempt_sequence, status, final, worker_id, seconds, error_type, error_message",
            "attempt_sequence",
        ),
        calls=rows(
            "llm_calls",
            "attempt_id, span_id, response_id, choice_index AS choice, fate, reason, detail, "
            "coalesce(response_model, requested_model) AS model, policy_version AS policy, "
            "prompt_token_count AS prompt_tokens, response_token_count AS response_tokens, finish_reason, seconds, "
            "start_unix_nano",
            "start_unix_nano, choice",
        ),
        rewards=rows(
            "rewards", "attempt_id, name, dimension, value, match, call_index, span_id", "source_offset, dimension"
        ),
        dropped=rows("dropped", "attempt_id, span_id, is_llm_call, reason, detail", "log_partition, log_offset"),
        shared=rows("shared_spans", "attempt_id, span_id, is_llm_call, reason, detail", "log_partition, log_offset"),
        notes=rows(
            "(SELECT rollout_id, attempt_id, attempt_sequence, unnest(notes) AS note FROM trajectories)",
            "attempt_id, note.reason AS reason, note.span_id AS span_id, note.count AS count, note.detail AS detail",
            "attempt_sequence, reason",
        ),
        segments=merge_segments(
            [
                _triplet(row)
                for row in rows(
                    "triplets",
                    "final, call_index, span_id, trace_id, agent_name, policy_version, prompt_token_ids, "
                    "response_token_ids, response_mask, reward",
                    "call_index",
                )
                if row["final"]
            ]
        ),
    )


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
