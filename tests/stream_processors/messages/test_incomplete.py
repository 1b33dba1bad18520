"""A span that lost part of its conversation says so, and one that is whole does not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lightstream.schemas.attribute_names import DROPPED_ATTRIBUTES, TRUNCATED
from lightstream.schemas.records import NoteReason, SpanEventRecord, SpanRecord
from lightstream.stream_processors.core.messages import read_conversation, why_incomplete

from ..assembly.build import assemble, framework_span, proxy_span

SAID = [{"role": "user", "parts": [{"type": "text", "content": "a long question " * 40}]}]
ANSWER = {"gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": "a"}]}])}
KIND = {"gen_ai.operation.name": "chat"}
WHOLE = KIND | ANSWER | {"gen_ai.input.messages": json.dumps(SAID)}
FLAT = {"gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": "?", "gen_ai.completion.0.role": "assistant"}


def event(name: str, attributes: dict[str, Any], dropped: int = 0) -> SpanEventRecord:
    return SpanEventRecord(name=name, attributes=attributes, dropped_attributes_count=dropped)


LOST = {
    "a value was cut": framework_span(1, WHOLE | {"gen_ai.input.messages": json.dumps(SAID)[:200]}),
    "the answer was cut": framework_span(1, WHOLE | {"gen_ai.output.messages": ANSWER["gen_ai.output.messages"][:20]}),
    "attributes were left out": framework_span(1, WHOLE, dropped_attributes_count=3),
    "attributes were left out, of an import": framework_span(1, WHOLE | {DROPPED_ATTRIBUTES: 3}),
    "events were left out": framework_span(1, WHOLE, dropped_events_count=1),
    "attributes of an event were left out": framework_span(
        1, KIND, events=[event("gen_ai.user.message", {"content": "?"}, 1)]
    ),
    "a body of an event was cut": framework_span(
        1, KIND, events=[event("gen_ai.user.message", {"gen_ai.event.content": '{"content": "a lo'})]
    ),
    "a numbered message is missing": framework_span(1, KIND | FLAT | {"gen_ai.prompt.2.role": "user"}),
    "OpenInference's first message is missing": framework_span(
        1, {"openinference.span.kind": "LLM", "llm.input_messages.1.message.role": "user"}
    ),
    "a body was cut": framework_span(
        1, {"langfuse.observation.type": "generation", "langfuse.observation.input": '[{"role": "user", "con'}
    ),
    "it was over the record's limit": framework_span(1, WHOLE | {TRUNCATED: ["gen_ai.input.messages: 9 MB"]}),
}
KEPT = {
    "all is there": framework_span(1, WHOLE),
    "structured": framework_span(1, KIND | {"gen_ai.input.messages": SAID}),
    "flat": framework_span(1, KIND | FLAT | {"gen_ai.prompt.1.role": "user"}),
    "instructions as text": framework_span(1, WHOLE | {"gen_ai.system_instructions": "[Be brief.]"}),
    "an answer of JSON that the model did not end": framework_span(
        1, {"langfuse.observation.input": "?", "langfuse.observation.output": '{"city": "Os'}
    ),
    "the proxy's": proxy_span(1, request_json="{}", response_json="{}").model_copy(update={"dropped_events_count": 1}),
}


@pytest.mark.parametrize("span", LOST.values(), ids=LOST)
def test_what_is_missing_is_noted_on_conversation_and_trajectory(span: SpanRecord) -> None:
    assert why_incomplete(span)
    found = read_conversation(span)
    assert found is None or found.incomplete == why_incomplete(span)
    (note,) = [note for note in assemble(span).notes if note.reason == NoteReason.INCOMPLETE_MESSAGES]
    assert (note.span_id, note.count, note.detail) == (span.span_id, 1, why_incomplete(span))


@pytest.mark.parametrize("span", KEPT.values(), ids=KEPT)
def test_what_is_whole_is_not_noted(span: SpanRecord) -> None:
    assert why_incomplete(span) == ""
    assert {note.reason for note in assemble(span).notes} == set()


def test_a_call_that_the_proxy_recorded_is_whole_whatever_a_framework_lost() -> None:
    lost = framework_span(2, WHOLE | {"gen_ai.response.id": "resp-1"}, dropped_attributes_count=3)
    notes = {note.reason for note in assemble(proxy_span(1), lost).notes}
    assert notes == {NoteReason.JOINED_CALL}


def test_content_that_no_message_holds_is_noted() -> None:
    sound = [{"role": "user", "parts": [{"type": "blob", "modality": "audio", "content": "AA"}]}]
    (note,) = assemble(framework_span(1, WHOLE | {"gen_ai.input.messages": json.dumps(sound)})).notes
    assert (note.reason, note.detail) == (NoteReason.CONTENT_LEFT_OUT, "part of type blob")
