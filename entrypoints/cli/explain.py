"""``lightstream explain``: one rollout, from its attempts to the step it trained in."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape

from lightstream.runtime.settings import Settings
from lightstream.schemas.records.reasons import DROP_MEANINGS, NOTE_MEANINGS, SHARED_SPAN_MEANING
from lightstream.store_views.explain import Explanation, explain
from lightstream.store_views.sql_literal import sql_literal
from lightstream.stream_processors.core.segments import Segment

from .formats import Format
from .rows import console_for_rows, print_rows
from .view_query import ask_view

_DECISIONS = """
SELECT span_id, array_to_string(json_extract(attributes, '$."lightstream.proxy.not_asked_for"')::VARCHAR[], '; ')
    AS not_asked_for
FROM spans
WHERE rollout_id = {} AND json_extract(attributes, '$."lightstream.proxy.not_asked_for"') IS NOT NULL
ORDER BY start_unix_nano
"""
"""Calls for which the proxy did not ask the model server for token ids or log-probabilities, and why."""

notes = Console(highlight=False, stderr=True)


def run_explain(settings: Settings, rollout_id: str, output: Format) -> None:
    """Print all facts about a rollout.

    Raises:
        NotFoundError: there is no such rollout.
        QueryError, ServiceUnavailableError: the view could not answer.
    """

    def ask(query: str) -> list[dict[str, Any]]:
        answer = ask_view(settings, query)
        if answer["truncated"]:
            count = len(answer["rows"])
            more = f'`lightstream sql "{query} OFFSET {count}"` gives the rest.'
            notes.print(f"Only the first {count:,} rows of one answer are shown; {escape(more)}", soft_wrap=True)
        return [dict(zip(answer["columns"], row, strict=True)) for row in answer["rows"]]

    found = explain(ask, rollout_id)
    decisions = ask(_DECISIONS.format(sql_literal(rollout_id)))
    if output is Format.JSON:
        sys.stdout.write(json.dumps(_as_json(found) | {"proxy": decisions}, default=str, ensure_ascii=False) + "\n")
        return
    _print_explanation(console_for_rows(), found)
    if decisions:
        _print(console_for_rows(), "Decided by the LLM proxy", decisions, ["span_id", "not_asked_for"])


def _print_explanation(console: Console, found: Explanation) -> None:
    rollout = found.rollout
    console.print(
        f"[bold]{escape(rollout['rollout_id'])}[/] {rollout['mode']}, {rollout['status']}: {escape(found.conclusion)}."
    )
    if found.next_step:
        console.print(escape(found.next_step))
    _print(
        console,
        "Attempts",
        found.attempts,
        ["attempt_id", "status", "final", "worker_id", "seconds", "error_type", "error_message"],
    )
    _print(
        console,
        "LLM calls",
        found.calls,
        ["span_id", "choice", "model", "policy", "prompt_tokens", "response_tokens", "fate", "reason", "detail"],
    )
    _print(console, "Rewards", found.rewards, ["name", "value", "match", "link", "call_index", "span_id"])
    _print(console, "Dropped", found.dropped, ["span_id", "is_llm_call", "reason", "detail"])
    for reason in sorted({row["reason"] for row in found.dropped}):
        console.print(f"  [bold]{escape(reason)}[/]: {escape(DROP_MEANINGS.get(reason, ''))}")
    if found.notes:
        _print(console, "Notes", found.notes, ["span_id", "count", "reason", "detail"])
        for reason in sorted({row["reason"] for row in found.notes}):
            console.print(f"  [bold]{escape(reason)}[/]: {escape(NOTE_MEANINGS.get(reason, ''))}")
    if found.shared:
        _print(console, "In several rollouts", found.shared, ["span_id", "is_llm_call", "reason", "detail"])
        console.print(f"  {escape(SHARED_SPAN_MEANING)}")
    _print(
        console,
        "Segments",
        [_segment(s) for s in found.segments],
        ["segment", "agent", "begins", "calls", "tokens", "sampled"],
    )


def _segment(segment: Segment) -> dict[str, Any]:
    diverged = "" if segment.diverged_at < 0 else f" at token {segment.diverged_at}"
    return {
        "segment": segment.index,
        "agent": segment.agent_name,
        "begins": f"{segment.start_reason}{diverged}",
        "calls": [turn.call_index for turn in segment.turns],
        "tokens": segment.length,
        "sampled": sum(segment.loss_mask),
    }


def _as_json(found: Explanation) -> dict[str, Any]:
    return {
        "rollout": found.rollout,
        "conclusion": found.conclusion,
        "reason_code": found.reason_code,
        "next_step": found.next_step,
        "attempts": found.attempts,
        "calls": found.calls,
        "rewards": found.rewards,
        "dropped": found.dropped,
        "shared": found.shared,
        "notes": found.notes,
        "segments": [_segment(segment) for segment in found.segments],
    }


def _print(console: Console, title: str, rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> None:
    """A table of the columns that say something; a line where there are no rows."""
    if not rows:
        console.print(f"{title}: none.")
        return
    shown = [column for column in columns if any(row[column] not in (None, "") for row in rows)]
    values = [["" if row[column] is None else row[column] for column in shown] for row in rows]
    print_rows(console, shown, values, title=title, cut=False)
