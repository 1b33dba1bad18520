"""Trees that are no trees, missing times, and attempts beyond their limit: a reason each, the rest unharmed."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightstream.schemas.codec import Codec
from lightstream.schemas.records import DropReason, NoteReason, SpanStatus, Trajectory, TripletRecord
from lightstream.stream_processors.core.assembly import AssemblyRules
from lightstream.stream_processors.core.messages import read_conversation

from .build import assemble, framework_span, opened, proxy_span, reward_span, span_id

DEPTH = 10_000


def noted(trajectory: Trajectory) -> dict[NoteReason, tuple[int, str]]:
    """Notes by reason: count and first span."""
    return {note.reason: (note.count, note.span_id) for note in trajectory.notes}


def test_a_cycle_loses_no_call_and_is_noted() -> None:
    spans = [
        proxy_span(1, parent=2),
        proxy_span(2, parent=3),
        framework_span(3, {"agent.name": "a"}, parent=1),
        proxy_span(4, parent=4),
        proxy_span(5),
    ]
    trajectory = assemble(*spans)
    assert len(trajectory.triplets) == 4
    assert noted(trajectory) == {NoteReason.PARENT_CYCLE: (2, span_id(3))}
    assert [t.agent_name for t in trajectory.triplets] == ["a", "a", None, None]


def test_a_tree_ten_thousand_deep() -> None:
    assert sys.getrecursionlimit() < DEPTH
    chain = [framework_span(n, parent=n - 1) for n in range(2, DEPTH)]
    spans = [framework_span(1, {"agent.name": "root"}), *chain, proxy_span(DEPTH, parent=DEPTH - 1)]
    for order in (spans, spans[::-1]):
        (triplet,) = assemble(*order).triplets
        assert triplet.agent_name == "root"


def test_llm_spans_nested_ten_thousand_deep_with_the_same_tokens_are_one_call() -> None:
    tokens = {"prompt_token_ids": [1], "response_token_ids": [2]}
    spans = [framework_span(n, tokens, parent=n - 1) for n in range(1, DEPTH)]
    assert len(assemble(*spans).triplets) == 1
    assert len(assemble(*reversed(spans)).triplets) == 1


def test_missing_parents_and_times_are_noted_only() -> None:
    spans = [
        proxy_span(1, parent=77).model_copy(update={"start_unix_nano": 0, "end_unix_nano": 0}),
        proxy_span(2, parent=78),
        proxy_span(3),
    ]
    trajectory = assemble(*spans)
    assert len(trajectory.triplets) == 3
    assert trajectory.triplets[0].start_unix_nano == 0
    assert noted(trajectory) == {
        NoteReason.MISSING_PARENT: (2, span_id(1)),
        NoteReason.MISSING_TIME: (1, span_id(1)),
    }


def test_calls_beyond_the_size_limit_are_dropped_in_log_order() -> None:
    big = list(range(1000))
    rules = AssemblyRules(trajectory_bytes_max=10_000)
    spans = [proxy_span(1, big, [1]), proxy_span(2, big, [1]), proxy_span(3, big, [1]), proxy_span(4, [1], [2])]
    trajectory = assemble(*spans, reward_span(5, 1.0), rules=rules)
    assert [t.span_id for t in trajectory.triplets] == [span_id(1), span_id(2), span_id(4)]
    assert [(d.reason, d.span_id) for d in trajectory.drops] == [(DropReason.TOO_LARGE, span_id(3))]
    assert trajectory.reward == 1.0
    repeated = assemble(*spans, spans[2], spans[3], reward_span(5, 1.0), rules=rules)
    assert repeated.triplets == trajectory.triplets
    assert [d.reason for d in repeated.drops] == [DropReason.TOO_LARGE]


def test_a_task_that_fills_the_trajectory_leaves_no_room_for_calls() -> None:
    rules = AssemblyRules(trajectory_bytes_max=1_000)
    trajectory = assemble(proxy_span(1), rules=rules, input_json='"' + "x" * 2_000 + '"')
    assert [d.reason for d in trajectory.drops] == [DropReason.TOO_LARGE]


def test_what_servers_say_of_failures_is_cut_and_counted() -> None:
    said = "x" * 10_000
    failed = [
        framework_span(n, {"gen_ai.operation.name": "chat"}, status=SpanStatus.ERROR, status_message=said)
        for n in range(1, 5)
    ]
    assert [len(drop.detail) for drop in assemble(*failed).drops] == [500] * 4
    (drop,) = assemble(proxy_span(9, http_status=500, error_message=said)).drops
    assert (len(drop.detail), drop.detail[:12]) == (500, "HTTP 500: xx")
    full = assemble(*failed, rules=AssemblyRules(trajectory_bytes_max=2_000))
    assert [drop.reason for drop in full.drops] == [DropReason.CALL_FAILED] * 4
    assert sum(len(drop.detail) for drop in full.drops) < 2_000


def test_a_span_with_the_id_of_another_that_alone_told_of_a_call_is_a_lost_call() -> None:
    told = {"prompt_token_ids": [1], "response_token_ids": [2], "gen_ai.response.id": "resp-1"}
    for telling in (proxy_span(1), framework_span(1, told)):
        (drop,) = assemble(framework_span(1), telling).drops
        assert (drop.reason, drop.is_llm_call, drop.response_id) == (DropReason.CONFLICTING_SPAN, True, "resp-1")
        (drop,) = assemble(framework_span(1, told), telling, framework_span(1)).drops[-1:]
        assert (drop.is_llm_call, drop.response_id) == (False, None)


def test_a_span_of_another_rollout_is_not_taken() -> None:
    stranger = proxy_span(2, rollout_id="other").model_copy(update={"attempt_id": opened().attempt_id})
    assert [t.span_id for t in assemble(proxy_span(1), stranger).triplets] == [span_id(1)]


def test_triplets_have_every_field_with_its_type() -> None:
    triplets = assemble(proxy_span(1), proxy_span(2, response_logprobs=None), reward_span(3, 1)).triplets
    assert len(triplets) == 2
    for triplet in triplets:
        assert TripletRecord(**triplet.model_dump()) == triplet
        assert set(triplet.__dict__) == set(TripletRecord.model_fields)


def test_a_conflicting_span_delivered_twice_is_told_once() -> None:
    other = proxy_span(1, [9], [9])
    trajectory = assemble(proxy_span(1), other, other, proxy_span(1, [8], [8]), other)
    assert [(d.reason, d.source_offset) for d in trajectory.drops] == [
        (DropReason.CONFLICTING_SPAN, 2),
        (DropReason.CONFLICTING_SPAN, 4),
    ]


CUT_TEXT = st.text("aé\ud83d", min_size=1, max_size=4) | st.text("aé\ude00", min_size=1, max_size=4)
LLM_KIND = {"openinference.span.kind": "LLM"}


@given(CUT_TEXT)
def test_json_whose_text_was_cut_within_a_character_can_be_written(text: str) -> None:
    choice = {"token_ids": [2], "finish_reason": text}
    answer = {"id": text, "model": text, "prompt_token_ids": [1], "choices": [choice]}
    failed = {"error": {"message": text}}
    trajectory = assemble(
        framework_span(1, {"metadata": json.dumps({"lc_agent_name": text})}),
        framework_span(2, LLM_KIND | {"output.value": json.dumps(answer)}, parent=1),
        framework_span(3, LLM_KIND | {"output.value": json.dumps(failed)}),
        framework_span(4, {"llm.hosted_vllm.error": repr(failed["error"])}, name="raw_gen_ai_request"),
    )
    codec = Codec()
    assert codec.decode(codec.encode(trajectory)) == trajectory
    shown = text.encode(errors="replace").decode()
    told = [(t.response_id, t.model, t.finish_reason, t.agent_name) for t in trajectory.triplets]
    assert told == [(shown, shown, shown, shown)]
    assert [drop.detail for drop in trajectory.drops] == [shown, shown]


@given(CUT_TEXT)
def test_messages_whose_text_was_cut_within_a_character_can_be_written(text: str) -> None:
    asked = json.dumps({"messages": [{"role": "user", "content": [{"type": "text", text: text}]}]})
    answered = json.dumps({"role": "assistant", "content": text})
    conversation = read_conversation(proxy_span(1, request_json=asked, response_json=answered))
    assert conversation is not None
    shown = text.encode(errors="replace").decode()
    assert conversation.messages[0]["content"][0][shown] == shown
    assert conversation.answer[0]["content"] == shown


@pytest.mark.parametrize("index", ["1" * 10, "1" * 5_000])
def test_an_index_that_no_list_has_is_no_index(index: str) -> None:
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": "chat",
        f"gen_ai.prompt.{index}.role": "system",
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": "hi",
    }
    span = framework_span(2, attributes, name="openai.chat")
    conversation = read_conversation(span)
    assert conversation is not None
    assert [message["role"] for message in conversation.messages] == ["user"]
    assert len(assemble(proxy_span(1), span).triplets) == 1


@pytest.mark.parametrize(
    "tool_calls",
    [5, ["x"], [{"function": "search"}], [{"function": {"name": 3, "arguments": {"a": [1]}}}], [{"function": None}]],
)
def test_tool_calls_of_any_shape_lose_no_tokens(tool_calls: Any) -> None:
    answer = json.dumps({"role": "assistant", "content": "x", "tool_calls": tool_calls})
    trajectory = assemble(proxy_span(1, response_json=answer), proxy_span(2))
    assert [triplet.span_id for triplet in trajectory.triplets] == [span_id(1), span_id(2)]
    raw = framework_span(1, {"openinference.span.kind": "LLM", "output.value": json.dumps({"choices": [answer]})})
    assert assemble(raw, proxy_span(2)).triplets


@pytest.mark.parametrize("arguments", ["{1: 2, 'a': 3}", "{(1, 2): 3}", "{1, 2}", "b'x'", "'['"])
def test_arguments_that_json_cannot_say_lose_no_tokens(arguments: str) -> None:
    message = f"{{'tool_calls': [{{'function': {{'name': 'f', 'arguments': {arguments}}}}}]}}"
    attributes = {
        "llm.openai.prompt_token_ids": "[1]",
        "llm.openai.choices": f"[{{'index': 0, 'token_ids': [2], 'message': {message}}}]",
    }
    request = framework_span(1, attributes, name="raw_gen_ai_request")
    assert [triplet.span_id for triplet in assemble(request).triplets] == [span_id(1)]


@pytest.mark.parametrize("choice_index", [-1, 0, 7])
def test_a_prompt_that_the_choice_does_not_have_is_none(choice_index: int) -> None:
    answer = '{"role": "assistant", "content": "b"}'
    record = proxy_span(1, choice_index=choice_index, request_json='{"prompt": ["a"]}', response_json=answer)
    conversation = read_conversation(record)
    assert conversation is not None
    asked = [{"role": "user", "content": "a"}] if choice_index == 0 else []
    assert conversation.messages == asked
