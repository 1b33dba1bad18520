"""What a call's answer says, short enough to keep: how spans that quote no response id find theirs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Any

from lightstream.schemas.records import SpanRecord

from ..dialects import is_list, is_map, parse_json
from ..messages import as_text, read_conversation, text_of

__all__ = ["AnswersByWord", "said_in"]


def said_in(span: SpanRecord) -> int | None:
    """A fingerprint of the answer's text and tool calls, the same whoever recorded it; ``None`` where there is none."""
    if span.llm_call is not None:
        answer = parse_json(span.llm_call.response_json)
    else:
        found = read_conversation(span)
        answer = found.answer[0] if found is not None and found.answer else None
    if not is_map(answer):
        return None
    text = text_of(answer.get("content")).strip()
    listed = answer.get("tool_calls")
    calls = tuple(_call(call) for call in listed) if is_list(listed) else ()
    return hash((text, calls)) if text or calls else None


def _call(call: object) -> tuple[str, str]:
    """A tool's name and arguments; whitespace between these and their order do not count."""
    named = call.get("function") if is_map(call) else None
    function: Mapping[str, Any] = named if is_map(named) else {}
    arguments = function.get("arguments")
    parsed = parse_json(arguments)
    return as_text(function.get("name")), as_text(arguments if parsed is None else parsed, sort_keys=True)


class AnswersByWord:
    """Records of the proxy by what their answers say."""

    def __init__(self) -> None:
        self._records: dict[int, list[int]] = {}
        self._taken: dict[tuple[int, str], dict[int, int]] = {}

    def add(self, said: int, index: int) -> None:
        """A record at position ``index`` of the log's observations; in ascending order."""
        self._records.setdefault(said, []).append(index)

    def take(self, said: int, scope: str, index: int) -> int | None:
        """The record that a span of ``scope`` at position ``index`` describes; ask in ascending order.

        A record is durable before its answer is given, so it precedes the spans that describe it. Of several that say
        the same the last one counts that no span of this scope took before: each tracer reports a call once.
        """
        records = self._records.get(said, [])
        before = bisect_left(records, index)
        if not before:
            return None
        taken = self._taken.setdefault((said, scope), {})
        free = _last_free(taken, before - 1)
        if free < 0:
            return records[before - 1]
        taken[free] = free - 1
        return records[free]


def _last_free(taken: dict[int, int], position: int) -> int:
    """The last position up to this one that is not ``taken``; -1 for none.

    Each taken position points at one before it, with none free between. What was passed then points at the result, so
    that no way is walked twice.
    """
    free = position
    while free in taken:
        free = taken[free]
    while position != free:
        taken[position], position = free, taken[position]
    return free
