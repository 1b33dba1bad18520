"""What Weave's tracer spells out of an LLM's answer is read as the answer itself would be."""

from __future__ import annotations

from typing import Any

import pytest

from lightstream.producers.attributes import flatten_attributes, sanitize_attributes
from lightstream.schemas.packing import pack_float32, pack_int32
from lightstream.schemas.records import DropReason, SpanRecord
from lightstream.stream_processors.core.dialects import read_calls

from .build import assemble, framework_span, span_id

OUTPUT = "agentlightning.operation.output"


def operation(output: dict[str, Any], number: int = 1, **fields: Any) -> SpanRecord:
    """A span as the tracer makes it of an operation that returned ``output``."""
    attributes = sanitize_attributes(flatten_attributes({OUTPUT: output}))
    return framework_span(number, attributes, name="openai.chat.completions.create", **fields)


def choice(index: int, token_ids: list[int], *logprobs: float) -> dict[str, Any]:
    """A choice with its log-probabilities, as an OpenAI client shows it."""
    content = [{"token": "x", "logprob": value, "bytes": [120], "top_logprobs": []} for value in logprobs]
    message = {"role": "assistant", "content": str(index)}
    return {
        "index": index,
        "finish_reason": ["stop", "length"][index],
        "message": message,
        "token_ids": token_ids,
        "logprobs": {"content": content},
    }


ANSWER: dict[str, Any] = {
    "id": "resp-1",
    "model": "policy@3",
    "prompt_token_ids": [1, 2, 3],
    "choices": [choice(0, [4, 5], -0.1, -0.2), choice(1, [6], -0.3)],
}


def test_every_choice_is_a_call_with_its_logprobs() -> None:
    trajectory = assemble(operation(ANSWER))
    assert [
        (t.choice_index, t.response_token_ids, t.response_logprobs, t.finish_reason, t.policy_version, t.response_id)
        for t in trajectory.triplets
    ] == [
        (0, pack_int32([4, 5]), pack_float32([-0.1, -0.2]), "stop", 3, "resp-1"),
        (1, pack_int32([6]), pack_float32([-0.3]), "length", 3, "resp-1"),
    ]
    assert trajectory.drops == []


def test_token_ids_of_all_choices_at_once_are_handed_out_by_index() -> None:
    choices = [{name: value for name, value in each.items() if name != "token_ids"} for each in ANSWER["choices"]]
    calls = read_calls(operation(ANSWER | {"choices": choices, "response_token_ids": [[4, 5], [6]]}))
    assert [call.response_token_ids for call in calls] == [pack_int32([4, 5]), pack_int32([6])]


def test_each_choice_without_tokens_is_a_call_that_is_told() -> None:
    choices = [{"message": {"role": "assistant", "content": text}} for text in "ab"]
    trajectory = assemble(operation({"id": "resp-1", "choices": choices}))
    assert [(drop.reason, drop.choice_index) for drop in trajectory.drops] == [
        (DropReason.NO_TOKEN_IDS, 0),
        (DropReason.NO_TOKEN_IDS, 1),
    ]


def test_an_operation_around_the_call_that_returns_its_answer_is_the_same_call() -> None:
    trajectory = assemble(operation(ANSWER, 2, parent=1), operation(ANSWER))
    assert [triplet.joined_span_ids for triplet in trajectory.triplets] == [[span_id(1)], [span_id(1)]]


@pytest.mark.parametrize("output", [{"choices": [{"text": "red"}, {"text": "blue"}]}, {"choices": ["red"]}])
def test_other_operations_may_return_choices_too(output: dict[str, Any]) -> None:
    assert read_calls(operation(output)) == []
