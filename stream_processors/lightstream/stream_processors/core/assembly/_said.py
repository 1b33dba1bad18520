"""What a call's answer says, short enough to keep: how spans that quote no response id find theirs."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping
from typing import Any

from lightstream.schemas.records import SpanRecord

from ..dialects import is_list, is_map, parse_json
from ..messages import read_conversation, text_of

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
    function: Mapping[str, Any] = call.get("function") or {} if is_map(call) else {}
    arguments = function.get("arguments")
    parsed = parse_json(arguments)
    shown = str(arguments) if parsed is None else json.dumps(parsed, sort_keys=True, default=str)
    return str(function.get("name")), shown


class AnswersByWord:
    """Records of the proxy by what their answers say."""

    def __init__(self) -> None:
        self._records: dict[int, list[int]] = {}
        self._free: dict[tuple[int, str], tuple[list[int], int]] = {}

    def add(self, said: int, index: int) -> None:
        """A record at position ``index`` of the log's sightings; in ascending order."""
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
        free, seen = self._free.get((said, scope), ([], 0))
        free.extend(records[seen:before])
        self._free[said, scope] = free, before
        return free.pop() if free else records[before - 1]
