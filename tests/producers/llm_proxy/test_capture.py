"""What is taken out of raw answers, and what agents get to see of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightstream.producers.llm_proxy.call import caller_of
from lightstream.producers.llm_proxy.capture import (
    Completion,
    RequestedExtras,
    capture,
    policy_version_of,
    without_extras,
)
from lightstream.producers.llm_proxy.events import EVENT_BYTES_MAX, EventSplitter, event_data
from lightstream.schemas.codec import Codec
from lightstream.schemas.records import LlmCall, SpanRecord
from tests.producers.llm_proxy.upstreams import chunk, completion, event

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"


def test_a_whole_answer_gives_its_tokens() -> None:
    answer = Completion()
    capture(answer, completion(usage={"prompt_tokens": 3}), is_whole=True)
    assert (answer.response_id, answer.model, answer.prompt_token_ids) == ("chatcmpl-1", "m@4", [1, 2, 3])
    (choice,) = answer.choices.values()
    assert (choice.token_ids, choice.logprobs, choice.finish_reason) == ([7, 8], [-0.5, -0.5], "stop")
    assert choice.message.recorded() == {"role": "assistant", "content": "aa"}


def test_chunks_add_up() -> None:
    answer = Completion()
    for body in (chunk(4, first=True), chunk(5), chunk(6, finish_reason="length")):
        capture(answer, body)
    (choice,) = answer.choices.values()
    assert (choice.token_ids, choice.logprobs) == ([4, 5, 6], [-4.0, -5.0, -6.0])
    assert choice.message.texts["text"] == "<4><5><6>"
    assert answer.prompt_token_ids == [1, 2, 3]


def test_the_last_finish_reason_holds() -> None:
    """Some servers say ``stop`` with the last token, and why it really ended in the chunk after it."""
    answer = Completion()
    for body in (chunk(4, first=True, finish_reason="stop"), chunk(5, finish_reason="tool_calls")):
        capture(answer, body)
    assert answer.choices[0].finish_reason == "tool_calls"


def test_the_text_of_each_token_is_kept() -> None:
    answer = Completion()
    for body in (chunk(4, first=True), chunk(5)):
        capture(answer, body)
    assert answer.choices[0].token_texts == ["a", "a"]
    of_text = Completion()
    logprobs = {"tokens": [" é", "<end>"], "token_logprobs": [-1.0, -2.0], "text_offset": [0, 2]}
    capture(of_text, {"choices": [{"index": 0, "text": " é", "token_ids": [1, 2], "logprobs": logprobs}]})
    assert of_text.choices[0].token_texts == [" é", "<end>"]


@pytest.mark.parametrize("content", [[{"logprob": -1.0}], [{"token": "token_id:7", "logprob": -1.0}], None, 3])
def test_text_that_is_not_told_is_unknown(content: Any) -> None:
    answer = Completion()
    capture(answer, {"choices": [{"index": 0, "token_ids": [7], "logprobs": {"content": content}}]})
    assert answer.choices[0].token_texts is None


def test_streamed_tool_calls_add_up() -> None:
    answer = Completion()
    for arguments in ('{"a"', ": 1}"):
        function = {"name": "add", "arguments": arguments} if arguments[0] == "{" else {"arguments": arguments}
        call = {"index": 0, "function": function} | ({"id": "c1"} if arguments[0] == "{" else {})
        capture(answer, {"choices": [{"index": 0, "delta": {"role": "assistant", "tool_calls": [call]}}]})
    (made,) = answer.choices[0].message.recorded()["tool_calls"]
    assert made["function"] == {"name": "add", "arguments": '{"a": 1}'}
    assert made["id"] == "c1"


def test_token_ids_inside_litellm_s_fields_are_found() -> None:
    answer = Completion()
    fields = {"token_ids": [9]}
    capture(
        answer,
        {
            "provider_specific_fields": {"prompt_token_ids": [5]},
            "choices": [{"index": 0, "message": {"role": "assistant"}, "provider_specific_fields": fields}],
        },
    )
    assert (answer.prompt_token_ids, answer.choices[0].token_ids) == ([5], [9])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["id", "model", "choices", "index", "delta", "message", "logprobs", "content", "tool_calls"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(["choices", "prompt_token_ids", "usage", "id"]), JSON))
def test_no_answer_is_too_strange(body: dict[str, Any]) -> None:
    answer = Completion()
    capture(answer, body)
    without_extras(body, RequestedExtras(logprobs=False, token_ids=False))


@pytest.mark.parametrize(
    ("wanted", "has_logprobs", "has_ids"),
    [
        (RequestedExtras(False, False), False, False),
        (RequestedExtras(True, False), True, False),
        (RequestedExtras(False, True), False, True),
    ],
)
def test_agents_get_only_what_they_asked_for(wanted: RequestedExtras, has_logprobs: bool, has_ids: bool) -> None:
    body = completion()
    without_extras(body, wanted)
    assert (body["choices"][0]["logprobs"] is not None) == has_logprobs
    assert ("token_ids" in body["choices"][0]) == has_ids
    assert ("prompt_token_ids" in body) == has_ids


@pytest.mark.parametrize(
    ("header", "model", "version"),
    [
        ("7", "m@3", 7),
        (None, "m@3", 3),
        ("", "m@12", 12),
        ("x", "m", None),
        (None, None, None),
        (None, "a@b", None),
        (None, f"m@{2**63 - 1}", 2**63 - 1),
        (None, f"m@{2**63}", None),
        ("9" * 25, "m@3", 3),
        ("9" * 5000, None, None),  # Python itself refuses to read more than 4300 digits
    ],
)
def test_the_header_names_the_version_else_the_model(
    header: str | None, model: str | None, version: int | None
) -> None:
    found = policy_version_of(header, model)
    assert found == version
    Codec().encode(SpanRecord(trace_id="0" * 32, span_id="1" * 16, name="n", llm_call=LlmCall(policy_version=found)))


def test_the_caller_is_in_the_url_else_in_headers() -> None:
    by_path = caller_of({"rollout_id": "r", "attempt_id": "a"}, {"x-lightstream-rollout-id": "other"})
    assert (by_path.rollout_id, by_path.attempt_id, by_path.key) == ("r", "a", "r")
    by_header = caller_of({}, {"x-lightstream-rollout-id": "r", "x-lightstream-attempt-id": "a"})
    assert (by_header.rollout_id, by_header.attempt_id) == ("r", "a")
    nobody = caller_of({}, {})
    assert nobody.rollout_id is None
    assert nobody.key == nobody.trace_id
    with pytest.raises(ValueError, match="together"):
        caller_of({}, {"x-lightstream-rollout-id": "r"})


@pytest.mark.parametrize(
    ("header", "taken"),
    [(f"00-{TRACE}-{PARENT}-01", True), (f"00-{'0' * 32}-{PARENT}-01", False), ("nonsense", False), ("", False)],
)
def test_a_valid_trace_context_is_joined(header: str, taken: bool) -> None:
    caller = caller_of({}, {"traceparent": header})
    assert (caller.trace_id == TRACE) == taken
    assert caller.parent_id == (PARENT if taken else None)
    assert len(caller.trace_id) == 32


@given(st.lists(st.integers(0, 999), max_size=6), st.lists(st.integers(1, 40)), st.sampled_from([b"\n", b"\r\n"]))
def test_events_survive_any_cut_of_the_network(tokens: list[int], cuts: list[int], line_end: bytes) -> None:
    events = [event(chunk(token)) for token in tokens] + [event(b"[DONE]")]
    stream = b"".join(events).replace(b"\n", line_end)
    splitter, found, position = EventSplitter(), list[bytes](), 0
    for cut in [*cuts, len(stream)]:
        found += splitter.feed(stream[position : position + cut])
        position += cut
    assert found + splitter.rest() == events


def test_an_event_without_end_is_not_gathered_for_ever() -> None:
    splitter = EventSplitter()
    piece = b"x" * (EVENT_BYTES_MAX // 4)
    for _ in range(5):
        assert splitter.feed(piece) == []
    with pytest.raises(ValueError, match="an event has over"):
        splitter.feed(piece)


def test_event_data_is_joined_and_comments_have_none() -> None:
    assert event_data(b"event: x\ndata: 1\ndata:2\n\n") == b"1\n2"
    assert event_data(b": keep-alive\n\n") is None
