"""Chat messages from spans: conversations to fine-tune on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypedDict

from lightstream.schemas.records import SpanRecord
from lightstream.schemas.types import Span

from ..core.assembly import read_attempt
from ..core.dialects import is_map
from ..core.messages import Conversation, grouped, read_conversation
from ._records import record_of, spans_of
from .base import TraceAdapter


class OpenAIMessages(TypedDict):
    """One line of OpenAI's fine-tuning format: messages, and the tools on offer (``None``: none were named)."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None


class TraceToMessages(TraceAdapter[list[OpenAIMessages]]):
    """One conversation per LLM call: its messages, its answer, and the tools on offer.

    Tool calls of an answer are taken from the tool spans below the call, else from the answer itself.
    """

    def get_tool_calls(self, completion: Span, all_spans: Sequence[Span], /) -> Iterable[dict[str, Any]]:
        """The tools that spans directly below ``completion`` record: the attributes ``tool.*``, nested."""
        return _tools_of([span for span in all_spans if span.parent_id == completion.span_id])

    def adapt(self, source: Sequence[Span], /) -> list[OpenAIMessages]:
        """The conversations of ``source`` in its order; of spans that describe one call, the first with messages."""
        spans = spans_of(source)
        records = [record_of(span) for span in spans]
        calls = read_attempt(zip(records, range(len(records)), strict=True)).calls_at
        below: dict[str, list[Span]] = {}
        for span in spans:
            if span.parent_id:
                below.setdefault(span.parent_id, []).append(span)
        described: set[int] = set()
        seen: set[tuple[str, str]] = set()
        conversations: list[OpenAIMessages] = []
        for span, record in zip(spans, records, strict=True):
            key = (record.trace_id, record.span_id)
            of_call = calls.get(key, [])
            if key in seen or (of_call and all(id(call) in described for call in of_call)):
                continue
            conversation = read_conversation(record) if of_call or _is_flat(record) else None
            if conversation is None:
                continue
            seen.add(key)
            described.update(map(id, of_call))
            conversations.append(_as_openai(conversation, list(_tools_of(below.get(span.span_id, [])))))
        return conversations


def _is_flat(record: SpanRecord) -> bool:
    """Whether it has messages under the names that need no other sign of an LLM call."""
    return any(name.startswith(("gen_ai.prompt.", "gen_ai.completion.")) for name in record.attributes)


def _tools_of(spans: Iterable[Span]) -> Iterable[dict[str, Any]]:
    for span in spans:
        tool = grouped(span.attributes, "tool")
        if is_map(tool) and tool:
            yield dict(tool)


def _as_openai(conversation: Conversation, tools: list[dict[str, Any]]) -> OpenAIMessages:
    answers: list[dict[str, Any]] = []
    for answer in conversation.answer:
        message = dict(answer)
        calls = [call for tool in tools if (call := _tool_call_of(tool)) is not None]
        if calls:
            message["tool_calls"] = calls
        answers.append(message)
    return OpenAIMessages(messages=[*conversation.messages, *answers], tools=conversation.tools)


def _tool_call_of(tool: dict[str, Any]) -> dict[str, Any] | None:
    """A tool call of a message, from a tool span; ``None`` where the span does not say which call it answers."""
    call = tool.get("call")
    if not is_map(call) or "name" not in tool:
        return None
    arguments = tool.get("parameters", "")
    return {
        "id": call.get("id", ""),
        "type": call.get("type", "function"),
        "function": {"name": tool["name"], "arguments": arguments},
    }
