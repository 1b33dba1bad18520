"""Work and memory grow with what spans hold, not with its square."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lightstream.schemas.packing import pack_int32
from lightstream.schemas.records import DropReason, SpanEventRecord, SpanRecord
from lightstream.stream_processors.core.dialects import read_calls

from .build import assemble, framework_span, proxy_span

CHOICES = 20
LISTED = "gen_ai.response.finish_reasons"
OUTPUT = "gen_ai.output.messages"
UNTOLD = json.dumps([{"finish_reason": ""}] * CHOICES)
CHOICES_ANSWER = {"prompt_token_ids": [1], "choices": [{"index": i, "token_ids": [i]} for i in range(CHOICES)]}
ANSWER = {"openinference.span.kind": "LLM", "output.value": json.dumps(CHOICES_ANSWER)}
STEP = {"metrics": {"prompt_token_ids": [1], "completion_token_ids": [2]}}
STEPS = {"atif.trajectory": json.dumps({"steps": [STEP] * CHOICES})}


def events() -> list[SpanEventRecord]:
    """Events that could tell why each choice ended, and do not; each has another text."""
    return [SpanEventRecord(name="e", attributes={OUTPUT: " " * n + UNTOLD}) for n in range(1, CHOICES)]


@pytest.mark.parametrize("answer", [ANSWER, STEPS])
@pytest.mark.parametrize("told", [{OUTPUT: UNTOLD}, {LISTED: json.dumps([""] * CHOICES)}, {LISTED: "[stop"}])
def test_no_text_of_a_span_is_parsed_twice(
    answer: dict[str, str], told: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    span = framework_span(1, answer | told, events=events())
    loads: Callable[[str], Any] = json.loads
    parsed: list[str] = []

    def counted(text: str) -> Any:
        parsed.append(text)
        return loads(text)

    monkeypatch.setattr(json, "loads", counted)
    assert len(read_calls(span)) == CHOICES
    assert sorted(parsed) == sorted(
        {*answer.values(), *told.values(), *(event.attributes[OUTPUT] for event in span.events)} - {"LLM"}
    )


class CountedEvents(list[SpanEventRecord]):
    """Counts how often all of them are gone through."""

    walks = 0

    def __iter__(self) -> Iterator[SpanEventRecord]:
        self.walks += 1
        return super().__iter__()


def test_events_are_gone_through_once_for_all_choices() -> None:
    told = CountedEvents(events())
    span = framework_span(1, ANSWER).model_copy(update={"events": told})
    assert len(read_calls(span)) == CHOICES
    assert told.walks == 1


PROMPT, RESPONSES = [1, 2, 3], [[4], [5], [6]]
SHARING: dict[str, dict[str, Any]] = {
    "vLLM": {"prompt_token_ids": PROMPT, "choices": [{"token_ids": ids} for ids in RESPONSES]},
    "text": {"prompt_token_ids": json.dumps(PROMPT), "choices": [{"token_ids": ids} for ids in RESPONSES]},
    "SGLang": {"sglext": {"input_ids": PROMPT, "output_ids": RESPONSES}, "choices": [{}] * 3},
    "no choices": {"prompt_token_ids": PROMPT, "response_token_ids": RESPONSES},
}


def answering(body: dict[str, Any]) -> SpanRecord:
    """A span that keeps this answer."""
    return framework_span(1, {"gen_ai.response.body": body})


@pytest.mark.parametrize("name", SHARING)
def test_choices_share_the_bytes_of_their_prompt(name: str) -> None:
    calls = read_calls(answering(SHARING[name]))
    assert [call.response_token_ids for call in calls] == [pack_int32(ids) for ids in RESPONSES]
    assert calls[0].prompt_token_ids == pack_int32(PROMPT)
    assert all(call.prompt_token_ids is calls[0].prompt_token_ids for call in calls)
    (place,) = {call.source_of("prompt_token_ids") for call in calls}
    assert place.startswith("gen_ai.response.body:")


def test_a_choice_that_has_a_prompt_of_its_own_keeps_it() -> None:
    choices = [{"token_ids": [4]}, {"token_ids": [5], "prompt_token_ids": [9]}]
    calls = read_calls(answering({"prompt_token_ids": PROMPT, "choices": choices}))
    assert [call.prompt_token_ids for call in calls] == [pack_int32(PROMPT), pack_int32([9])]
    assert calls[1].source_of("prompt_token_ids") == "gen_ai.response.body:choices[1].prompt_token_ids"


def test_a_bad_prompt_is_the_problem_of_each_choice_that_has_no_other() -> None:
    choices = [{"token_ids": [4]}, {"token_ids": [5], "prompt_token_ids": [9]}, {"token_ids": [6]}]
    calls = read_calls(answering({"prompt_token_ids": [1, "two"], "choices": choices}))
    assert [call.problem for call in calls] == [DropReason.BAD_TOKEN_IDS, None, DropReason.BAD_TOKEN_IDS]


EQUAL_ANSWERS = 1_500


def peak_bytes(*, scopes: int) -> int:
    """What it takes to join calls that all answer the same with spans that say so, in so many scopes."""
    said = {"role": "assistant", "content": "ok"}
    told = {"gen_ai.operation.name": "chat", OUTPUT: [said]}
    spans: list[SpanRecord] = []
    for n in range(EQUAL_ANSWERS):
        spans.append(proxy_span(2 * n + 1, response_json=json.dumps(said)))
        spans.append(framework_span(2 * n + 2, told, name=f"chat {n % scopes}"))
    tracemalloc.start()
    try:
        trajectory = assemble(*spans)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert all(triplet.joined_span_ids for triplet in trajectory.triplets)
    return peak


def test_equal_answers_in_many_scopes_take_hardly_more_memory_than_in_one() -> None:
    assert peak_bytes(scopes=EQUAL_ANSWERS) < 1.5 * peak_bytes(scopes=1)
