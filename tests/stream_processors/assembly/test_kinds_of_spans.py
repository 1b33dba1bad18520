"""Which spans are LLM calls, by what each library calls its operations, and that none counts twice."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lightstream.schemas.records import DropReason, NoteReason, SpanRecord, SpanStatus
from lightstream.stream_processors.core.dialects import read_calls

from .build import assemble, framework_span, proxy_span, span_id

OPERATION, RESPONSE = "gen_ai.operation.name", "gen_ai.response.id"
MLFLOW_ANSWER = json.dumps(
    {"id": "resp-1", "model": "policy@3", "choices": [{"index": 0, "finish_reason": "stop", "message": {}}]}
)


def litellm_span(number: int, operation: str, response_id: str = "resp-1", **fields: Any) -> SpanRecord:
    """LiteLLM's span, with its raw type of call."""
    attributes = {OPERATION: operation, RESPONSE: response_id, "litellm.call_id": "own-id"}
    return framework_span(number, attributes, name=fields.pop("name", "litellm_request"), **fields)


def raw_span(number: int, **values: Any) -> SpanRecord:
    """What LiteLLM sent and got."""
    attributes = {f"llm.anthropic.{name}": value for name, value in values.items()}
    return framework_span(number, attributes, name="raw_gen_ai_request", parent=1)


@pytest.mark.parametrize(
    "operation", ["completion", "acompletion", "aresponses", "aanthropic_messages", "atext_completion", "responses"]
)
@pytest.mark.parametrize("response_id", ["resp-1", "own-id"])
def test_litellms_requests_are_calls_whatever_their_type(operation: str, response_id: str) -> None:
    (drop,) = assemble(litellm_span(1, operation, response_id)).drops
    assert (drop.reason, drop.is_llm_call) == (DropReason.NO_TOKEN_IDS, True)
    assert drop.response_id == ("resp-1" if response_id == "resp-1" else None), "the other id is no server's"


@pytest.mark.parametrize(
    "operation",
    ["aembedding", "embeddings", "arerank", "aimage_generation", "aspeech", "afile_list", "vector_store_create"],
)
def test_litellms_other_requests_are_none(operation: str) -> None:
    assert read_calls(litellm_span(1, operation)) == []


@pytest.mark.parametrize(
    "operation",
    ["execute_tool", "invoke_agent", "create_agent", "invoke_workflow", "retrieval", "embeddings", "search_memory"],
)
def test_other_operations_are_none_even_if_they_quote_a_response(operation: str) -> None:
    assert read_calls(framework_span(1, {OPERATION: operation, RESPONSE: "resp-1"})) == []


def test_an_unknown_operation_is_a_call_where_it_quotes_a_response() -> None:
    assert [call.response_id for call in read_calls(framework_span(1, {OPERATION: "x", RESPONSE: "r"}))] == ["r"]
    assert read_calls(framework_span(1, {OPERATION: "x"})) == []
    assert read_calls(litellm_span(1, "acompletion", "own-id", name="agent")) == []


@pytest.mark.parametrize("kind", ['"CHAT_MODEL"', '"LLM"', "CHAT_MODEL"])
def test_mlflows_model_spans_are_calls(kind: str) -> None:
    attributes = {"mlflow.spanType": kind, "mlflow.spanOutputs": MLFLOW_ANSWER}
    (call,) = read_calls(framework_span(1, attributes))
    assert (call.dialect, call.response_id, call.finish_reason) == ("mlflow", "resp-1", "stop")
    assert len(read_calls(framework_span(1, attributes | {"mlflow.spanOutputs": "null"}))) == 1
    assert read_calls(framework_span(1, attributes | {"mlflow.spanType": '"CHAIN"'})) == []


@pytest.mark.parametrize(
    ("operation", "is_call"),
    [
        ("ai.streamText.doStream", True),
        ("ai.generateObject.doGenerate", True),
        ("ai.streamText", False),
        ("ai.embed.doEmbed", False),
        ("ai.toolCall", False),
    ],
)
def test_vercels_requests_are_calls_without_a_response_id_too(operation: str, *, is_call: bool) -> None:
    span = framework_span(1, {"ai.operationId": operation, "gen_ai.system": "openai"}, name=operation)
    assert len(read_calls(span)) == is_call


def test_litellms_spans_decorate_the_proxys_record() -> None:
    raw = raw_span(12, id="resp-1", model="m")
    trajectory = assemble(proxy_span(1), litellm_span(11, "acompletion"), raw.model_copy(update={"parent_id": None}))
    (triplet,) = trajectory.triplets
    assert triplet.joined_span_ids == [span_id(11), span_id(12)]
    assert trajectory.call_count == 1


def test_a_failed_request_of_litellms_is_not_counted_beside_the_proxys_record() -> None:
    failed = proxy_span(1, response_id=None, http_status=500, error_message="down", response_token_ids=None)
    tried = litellm_span(11, "acompletion", "own-id", status=SpanStatus.ERROR)
    trajectory = assemble(failed, tried)
    assert [drop.reason for drop in trajectory.drops] == [DropReason.CALL_FAILED]
    assert {note.reason: note.count for note in trajectory.notes} == {NoteReason.UNATTRIBUTED_CALL: 1}


def test_litellms_request_and_what_it_sent_are_one_call_though_their_ids_differ() -> None:
    """Of Anthropic's answers it makes its own, with another id."""
    raw = raw_span(2, id="msg_1", model="claude", type="message", content="[]")
    trajectory = assemble(litellm_span(1, "acompletion", "chatcmpl-1"), raw)
    assert trajectory.call_count == 1
    assert {note.reason: note.count for note in trajectory.notes} == {NoteReason.JOINED_CALL: 1}
    by_proxy = assemble(proxy_span(9, response_id="msg_1"), litellm_span(1, "acompletion", "chatcmpl-1"), raw)
    assert [triplet.joined_span_ids for triplet in by_proxy.triplets] == [[span_id(1), span_id(2)]]
    assert by_proxy.call_count == 1


@pytest.mark.parametrize("ids", [("resp-2", "resp-3"), (None, None)])
def test_a_span_around_several_requests_takes_none_away(ids: tuple[str | None, ...]) -> None:
    """LiteLLM writes its last request's attributes on the span that it finds open."""
    sent = [raw_span(number, id=response, model="m") for number, response in enumerate(ids, start=2)]
    trajectory = assemble(*sent, litellm_span(1, "acompletion", "resp-3", name="agent"))
    told = [drop.response_id for drop in trajectory.drops]
    assert told == (["resp-2", "resp-3"] if ids[0] else [None, None, "resp-3"])


def test_vercels_call_inside_the_proxys_time_is_told_once() -> None:
    span = framework_span(
        11, {"ai.operationId": "ai.streamText.doStream", "agent.name": "a"}, start_unix_nano=10, end_unix_nano=20
    )
    trajectory = assemble(proxy_span(1), span)
    assert [triplet.agent_name for triplet in trajectory.triplets] == ["a"]
    assert trajectory.call_count == 1


def test_mlflows_model_span_around_its_clients_is_the_same_call() -> None:
    attributes = {"mlflow.spanType": '"CHAT_MODEL"'}
    inside = framework_span(2, attributes | {"mlflow.spanOutputs": MLFLOW_ANSWER}, name="Completions", parent=1)
    trajectory = assemble(inside, framework_span(1, attributes, name="ChatOpenAI"))
    assert trajectory.call_count == 1
