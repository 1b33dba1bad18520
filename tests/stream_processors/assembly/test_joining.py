"""Which spans tell of the same call."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lightstream.schemas.packing import pack_float32, pack_int32, unpack_int32
from lightstream.schemas.records import DropReason, NoteReason, SpanRecord, Trajectory
from lightstream.stream_processors.core.assembly import AssemblyRules

from .build import assemble, framework_span, proxy_span, span_id


def sdk_span(
    number: int,
    prompt: list[int] | None = None,
    response: list[int] | None = None,
    response_id: str | None = None,
    *,
    name: str = "openai.chat.completion",
    parent: int | None = None,
    extra: dict[str, Any] | None = None,
) -> SpanRecord:
    """A framework's LLM span, with or without tokens and response id."""
    attributes: dict[str, Any] = {"gen_ai.operation.name": "chat"} | (extra or {})
    if prompt is not None:
        attributes["prompt_token_ids"] = prompt
    if response is not None:
        attributes["response_token_ids"] = response
    if response_id is not None:
        attributes["gen_ai.response.id"] = response_id
    return framework_span(number, attributes, name=name, parent=parent)


def called(trajectory: Trajectory) -> list[str]:
    """Spans of the triplets."""
    return [triplet.span_id for triplet in trajectory.triplets]


def noted(trajectory: Trajectory) -> dict[NoteReason, int]:
    """Notes by reason, with their counts."""
    return {note.reason: note.count for note in trajectory.notes}


def test_a_framework_span_decorates_the_proxys_record_by_response_id_across_traces() -> None:
    agent = framework_span(10, {"agent.name": "solver"}, trace_id="b" * 32)
    sdk = sdk_span(11, response_id="resp-1", parent=10).model_copy(update={"trace_id": "b" * 32})
    trajectory = assemble(proxy_span(1), agent, sdk)
    (triplet,) = trajectory.triplets
    assert triplet.dialect == "proxy"
    assert triplet.agent_name == "solver"
    assert triplet.joined_span_ids == [span_id(11)]
    assert triplet.field_sources == {"agent_name": f"{span_id(11)}:span"}
    assert trajectory.drops == []
    assert trajectory.call_count == 1


def test_the_proxys_tokens_win_and_other_tokens_for_the_same_response_are_told() -> None:
    trajectory = assemble(sdk_span(11, [1], [9, 9], "resp-1"), proxy_span(1, [1], [4, 5]))
    assert [t.response_token_ids for t in trajectory.triplets] == [pack_int32([4, 5])]
    (drop,) = trajectory.drops
    assert (drop.reason, drop.is_llm_call, drop.span_id) == (DropReason.DUPLICATE_CALL, False, span_id(11))
    assert trajectory.call_count == 1


def test_tokens_the_proxy_did_not_see_are_filled_in_together_with_their_source() -> None:
    blind = proxy_span(1, prompt_token_ids=None, response_token_ids=None, response_logprobs=None, response_model=None)
    sdk = sdk_span(11, [1], [2], "resp-1", extra={"gen_ai.response.model": "policy@7"})
    (triplet,) = assemble(blind, sdk).triplets
    assert triplet.prompt_token_ids == pack_int32([1])
    assert (triplet.policy_version, triplet.model) == (7, "policy@7")
    assert triplet.field_sources["response_token_ids"] == f"{span_id(11)}:response_token_ids"


def test_a_span_without_a_response_id_joins_the_record_with_the_same_tokens() -> None:
    trajectory = assemble(
        proxy_span(1, [1], [2]), sdk_span(11, [1], [2]), proxy_span(2, [1], [2]), sdk_span(12, [1], [2])
    )
    assert called(trajectory) == [span_id(1), span_id(2)]
    assert [t.joined_span_ids for t in trajectory.triplets] == [[span_id(11)], [span_id(12)]]


def test_a_call_that_did_not_pass_the_proxy_is_a_call_of_its_own() -> None:
    trajectory = assemble(proxy_span(1, [1], [2]), sdk_span(11, [3], [4]), sdk_span(12, response_id="elsewhere"))
    assert called(trajectory) == [span_id(1), span_id(11)]
    assert [(d.reason, d.span_id) for d in trajectory.drops] == [(DropReason.NO_TOKEN_IDS, span_id(12))]


def test_where_the_proxy_saw_the_calls_a_nameless_llm_span_is_none() -> None:
    trajectory = assemble(proxy_span(1), sdk_span(11), sdk_span(12))
    assert trajectory.call_count == 1
    assert noted(trajectory) == {NoteReason.UNATTRIBUTED_CALL: 2}


def test_parallel_calls_without_response_ids_are_both_kept() -> None:
    root = framework_span(1, name="agent")
    same = [sdk_span(2, [1], [2], parent=1), sdk_span(3, [1], [2], parent=1)]
    assert called(assemble(*same, root)) == [span_id(2), span_id(3)]
    same_proxy = [proxy_span(n, [1], [2], response_id=None) for n in (4, 5)]
    assert called(assemble(*same_proxy)) == [span_id(4), span_id(5)]


def test_sdk_and_framework_spans_with_one_response_id_are_one_call() -> None:
    trajectory = assemble(sdk_span(2, [1], [2], "x"), sdk_span(3, [1], [2], "x"), sdk_span(4, response_id="x"))
    assert called(trajectory) == [span_id(2)]
    assert noted(trajectory) == {NoteReason.JOINED_CALL: 2}


def test_the_span_with_tokens_is_believed_wherever_it_comes() -> None:
    trajectory = assemble(sdk_span(2, response_id="x"), sdk_span(3, [1], [2], "x"))
    assert called(trajectory) == [span_id(3)]
    assert trajectory.drops == []


def test_nested_spans_with_the_same_tokens_are_one_call() -> None:
    trajectory = assemble(sdk_span(3, [1], [2], parent=2), sdk_span(2, [1], [2]))
    assert called(trajectory) == [span_id(3)]


def test_nested_spans_with_other_tokens_are_two_calls() -> None:
    trajectory = assemble(sdk_span(3, [1], [2], parent=2), sdk_span(2, [1], [5]))
    assert called(trajectory) == [span_id(3), span_id(2)]


def test_one_llm_span_around_three_calls_is_a_wrapper() -> None:
    inner = [sdk_span(n, [n], [n], f"x{n}", parent=1) for n in (2, 3, 4)]
    trajectory = assemble(*inner, sdk_span(1))
    assert called(trajectory) == [span_id(n) for n in (2, 3, 4)]
    assert trajectory.drops == []
    assert noted(trajectory) == {NoteReason.JOINED_CALL: 1}


def test_the_outer_span_has_the_response_id_and_the_inner_one_the_tokens() -> None:
    raw = framework_span(
        3,
        {"llm.hosted_vllm.prompt_token_ids": "[1]", "llm.hosted_vllm.response_token_ids": "[[2]]"},
        name="raw_gen_ai_request",
        parent=2,
    )
    trajectory = assemble(raw, sdk_span(2, response_id="x", name="litellm_request"))
    (triplet,) = trajectory.triplets
    assert (triplet.response_id, triplet.span_id) == ("x", span_id(3))
    assert triplet.field_sources["response_id"] == f"{span_id(2)}:gen_ai.response.id"


def test_an_llm_span_that_quotes_an_earlier_response_is_no_new_call() -> None:
    trajectory = assemble(proxy_span(1), sdk_span(11, response_id="resp-1"), sdk_span(12, response_id="resp-1"))
    assert called(trajectory) == [span_id(1)]
    assert trajectory.call_count == 1


def test_a_server_that_repeats_its_response_id_made_different_calls() -> None:
    calls = [proxy_span(n, [n], [n], response_id="same") for n in (1, 2, 3)]
    sdk = [sdk_span(n + 10, response_id="same", extra={"agent.name": f"agent-{n}"}) for n in (1, 2, 3)]
    records = [record for pair in zip(calls, sdk, strict=True) for record in pair]
    trajectory = assemble(*records)
    assert [t.agent_name for t in trajectory.triplets] == ["agent-1", "agent-2", "agent-3"]


def test_two_proxies_in_a_row_record_one_call() -> None:
    trajectory = assemble(proxy_span(1, response_id="x"), proxy_span(2, response_id="x"))
    assert called(trajectory) == [span_id(1)]
    (drop,) = trajectory.drops
    assert (drop.reason, drop.is_llm_call) == (DropReason.DUPLICATE_CALL, True)


def test_choices_of_one_response_are_calls_of_their_own_and_share_the_agent() -> None:
    choices = [proxy_span(n, [1], [n], response_id="x", choice_index=n) for n in range(3)]
    trajectory = assemble(*choices, sdk_span(11, response_id="x", extra={"agent.name": "a"}))
    assert [(t.choice_index, t.agent_name) for t in trajectory.triplets] == [(0, "a"), (1, "a"), (2, "a")]


def answering(
    number: int, *responses: list[int], response_id: str | None = None, parent: int | None = None
) -> SpanRecord:
    """A span of LLM kind whose answer has several choices."""
    answer = {"id": response_id, "prompt_token_ids": [1, 2, 3], "choices": [{"token_ids": r} for r in responses]}
    attributes = {"openinference.span.kind": "LLM", "output.value": json.dumps(answer)}
    return framework_span(number, attributes, name="ChatOpenAI", parent=parent)


def of_choices(trajectory: Trajectory) -> list[tuple[int, list[int], list[str]]]:
    """Each triplet's choice, response and joined spans."""
    return [
        (t.choice_index, unpack_int32(t.response_token_ids).tolist(), t.joined_span_ids) for t in trajectory.triplets
    ]


def test_a_span_inside_one_of_several_choices_decorates_the_first() -> None:
    for inside in (sdk_span(12, parent=11), sdk_span(12, response_id="R", parent=11)):
        for spans in (
            [answering(11, [10, 11], [20, 21], response_id="R"), inside],
            [inside, answering(11, [10, 11], [20, 21], response_id="R")],
        ):
            trajectory = assemble(*spans)
            assert of_choices(trajectory) == [(0, [10, 11], [span_id(12)]), (1, [20, 21], [])]
            assert trajectory.drops == []


def test_choices_of_a_span_inside_are_those_of_the_one_around_each_of_its_own() -> None:
    for responses in ([[10], [20]], [[10], [10]]):
        for response_id in (None, "R"):
            inside = answering(12, *responses, parent=11)
            trajectory = assemble(inside, answering(11, *responses, response_id=response_id))
            told = [(index, response, [span_id(11)]) for index, response in enumerate(responses)]
            assert of_choices(trajectory) == told
            assert trajectory.call_count == 2


def test_calls_of_one_choice_each_inside_are_the_choices_around_them() -> None:
    inside = [sdk_span(12, [1, 2, 3], [10], parent=11), sdk_span(13, [1, 2, 3], [20], parent=11)]
    trajectory = assemble(*inside, answering(11, [10], [20]))
    assert called(trajectory) == [span_id(12), span_id(13)]
    assert [t.joined_span_ids for t in trajectory.triplets] == [[span_id(11)]] * 2


def test_equal_choices_of_one_response_that_lie_in_each_other_are_two() -> None:
    own = [
        proxy_span(n, [1], [4], response_id="x", choice_index=n - 1, http_status=None, parent=n - 1 or None)
        for n in (1, 2)
    ]
    assert [t.choice_index for t in assemble(*own).triplets] == [0, 1]


def test_a_tracers_own_record_gives_way_to_the_proxys() -> None:
    own = proxy_span(2, response_id="resp-1", http_status=None)
    trajectory = assemble(own, proxy_span(1))
    assert called(trajectory) == [span_id(1)]
    assert [(d.span_id, d.reason, d.is_llm_call) for d in trajectory.drops] == [
        (span_id(2), DropReason.DUPLICATE_CALL, True)
    ]


def test_two_records_of_the_proxy_are_never_made_one_through_other_spans() -> None:
    trajectory = assemble(
        proxy_span(1, [1], [2]),
        proxy_span(2, [1], [2]),
        sdk_span(11, [1], [2], "resp-1"),
        sdk_span(12, [1], [2], "resp-2", parent=11),
    )
    assert called(trajectory) == [span_id(1), span_id(2)]


def test_agent_names_come_from_the_nearest_span_above() -> None:
    spans = [
        framework_span(1, {"agent.name": "planner"}),
        framework_span(2, parent=1),
        framework_span(3, {"agent.name": "coder"}, parent=2),
        proxy_span(4, parent=2),
        proxy_span(5, parent=3),
        proxy_span(6, parent=99),
    ]
    trajectory = assemble(*spans)
    assert [t.agent_name for t in trajectory.triplets] == ["planner", "coder", None]
    assert noted(trajectory) == {NoteReason.MISSING_PARENT: 1}


def test_only_the_selected_agents_calls_are_trained_on() -> None:
    spans = [
        framework_span(1, {"agent.name": "planner"}),
        proxy_span(2, parent=1),
        framework_span(3, {"agent.name": "coder"}),
        proxy_span(4, parent=3),
        proxy_span(5),
    ]
    trajectory = assemble(*spans, rules=AssemblyRules(agents="^cod"))
    assert called(trajectory) == [span_id(4)]
    assert [d.reason for d in trajectory.drops] == [DropReason.AGENT_NOT_SELECTED] * 2


def test_a_judges_calls_inside_a_reward_are_not_trained_on() -> None:
    reward = framework_span(1, {"agentlightning.operation.name": "agentlightning.reward"})
    spans = [proxy_span(2), proxy_span(3, parent=1), reward]
    trajectory = assemble(*spans)
    assert called(trajectory) == [span_id(2)]
    assert [d.reason for d in trajectory.drops] == [DropReason.INSIDE_REWARD]
    assert len(assemble(*spans, rules=AssemblyRules(exclude_calls_in_rewards=False)).triplets) == 2


def test_streamed_answers_kept_by_openinference_join_the_proxys_record() -> None:
    answer = {"id": "resp-1", "choices": [{"index": 0, "message": {"content": "hi"}}]}
    attributes = {"openinference.span.kind": "LLM", "output.value": json.dumps(answer), "agent.name": "a"}
    (triplet,) = assemble(proxy_span(1), framework_span(11, attributes)).triplets
    assert triplet.agent_name == "a"


def worded(number: int, text: str, *, name: str = "ChatOpenAI", **fields: Any) -> SpanRecord:
    """A span of LLM kind that tells of a call by its answer alone."""
    attributes = {"openinference.span.kind": "LLM", "llm.output_messages.0.message.role": "assistant"}
    attributes |= {"llm.output_messages.0.message.content": text, "agent.name": f"agent-{number}"}
    return framework_span(number, attributes, name=name, trace_id="b" * 32, **fields)


def said(number: int, text: str) -> SpanRecord:
    """The proxy's record of an answer."""
    message = json.dumps({"role": "assistant", "content": text})
    return proxy_span(number, [number], response_json=message)


def agents(trajectory: Trajectory) -> list[str | None]:
    """Whose the calls are."""
    return [triplet.agent_name for triplet in trajectory.triplets]


def test_a_span_that_quotes_no_response_decorates_the_last_record_before_it_that_says_the_same() -> None:
    in_order = assemble(said(1, "yes"), worded(11, "yes"), said(2, " yes\n"), worded(12, "yes"))
    assert agents(in_order) == ["agent-11", "agent-12"]
    with_one_untold = assemble(said(1, "yes"), said(2, "no"), said(3, "yes"), worded(12, "no"), worded(13, "yes"))
    assert agents(with_one_untold) == [None, "agent-12", "agent-13"]
    at_once = assemble(said(1, "yes"), said(2, "yes"), worded(11, "yes"), worded(12, "yes"))
    assert sorted(filter(None, agents(at_once))) == ["agent-11", "agent-12"]
    by_two_tracers = assemble(said(1, "yes"), worded(11, "yes"), worded(12, "yes", name="acompletion"), said(2, "yes"))
    assert agents(by_two_tracers) == ["agent-11", None]
    assert [len(triplet.joined_span_ids) for triplet in by_two_tracers.triplets] == [2, 0]


def test_words_of_no_record_before_it_leave_a_span_unattributed() -> None:
    trajectory = assemble(worded(11, "yes"), said(1, "yes"), worded(12, "maybe"))
    assert agents(trajectory) == [None]
    assert noted(trajectory) == {NoteReason.UNATTRIBUTED_CALL: 2}


def test_tool_calls_are_words_too() -> None:
    call = {"id": "x", "type": "function", "function": {"name": "add", "arguments": '{"a":1,"b":2}'}}
    record = proxy_span(1, response_json=json.dumps({"role": "assistant", "content": None, "tool_calls": [call]}))
    told = "llm.output_messages.0.message.tool_calls.0.tool_call.function"
    attributes = {"openinference.span.kind": "LLM", f"{told}.name": "add", f"{told}.arguments": '{"b": 2, "a": 1}'}
    attributes["llm.output_messages.0.message.role"] = "assistant"
    (triplet,) = assemble(record, framework_span(11, attributes)).triplets
    assert triplet.joined_span_ids == [span_id(11)]


def test_a_span_without_words_decorates_the_only_record_made_during_it() -> None:
    during: dict[str, Any] = {"start_unix_nano": 10, "end_unix_nano": 20}
    silent = framework_span(11, {"openinference.span.kind": "LLM", "agent.name": "solver"}, **during)
    assert agents(assemble(said(1, "yes"), silent)) == ["solver"]
    for other in (
        said(1, "no").model_copy(update={"span_id": span_id(2)}),
        silent.model_copy(update={"span_id": span_id(2)}),
    ):
        two = assemble(said(1, "yes"), other, silent)
        assert noted(two)[NoteReason.UNATTRIBUTED_CALL] == 1
    elsewhere = silent.model_copy(update={"start_unix_nano": 12})
    assert noted(assemble(said(1, "yes"), elsewhere)) == {NoteReason.UNATTRIBUTED_CALL: 1}


def test_spans_with_the_same_tokens_are_one_call_with_spans_without_any_between_them() -> None:
    for response_id in (None, "resp-9"):
        outer, inner = sdk_span(1, [1], [2]), sdk_span(3, [1], [2], parent=2)
        trajectory = assemble(outer, sdk_span(2, response_id=response_id, parent=1), inner)
        assert called(trajectory) == [span_id(1)]
        assert trajectory.triplets[0].joined_span_ids == [span_id(2), span_id(3)]
    two = assemble(sdk_span(1, [1], [2]), sdk_span(2, parent=1), sdk_span(3, [1], [3], parent=2))
    assert called(two) == [span_id(1), span_id(3)], "other tokens are another call"


def test_the_only_request_within_a_call_is_that_call_whatever_id_it_quotes() -> None:
    def request(number: int, response_id: str) -> SpanRecord:
        attributes = {
            "llm.openai.id": response_id,
            "llm.openai.prompt_token_ids": "[1]",
            "llm.openai.choices": "[{'index': 0, 'token_ids': [2]}]",
        }
        return framework_span(number, attributes, name="raw_gen_ai_request", parent=1)

    outer = sdk_span(1, [1], [2], "litellm-1", name="litellm_request")
    assert called(assemble(outer, request(2, "up-1"))) == [span_id(1)]
    several = assemble(outer, request(2, "up-1"), request(3, "up-2"))
    assert called(several) == [span_id(1), span_id(2), span_id(3)]


def told_span(number: int, prompt: list[int], response: list[int], logprobs: list[float]) -> SpanRecord:
    """A span in the canonical dialect that answers ``resp-1``."""
    tokens = {"prompt_token_ids": prompt, "response_token_ids": response, "response_logprobs": logprobs}
    attributes: dict[str, Any] = {f"lightstream.{name}": values for name, values in tokens.items()}
    return framework_span(number, attributes | {"gen_ai.response.id": "resp-1"}, name="chat")


@pytest.mark.parametrize("wrong", [([1], [2], [-0.5, -0.5]), ([-1], [2], [-0.5]), ([1], [], [])])
def test_tokens_that_can_be_trained_on_are_believed_in_any_order(
    wrong: tuple[list[int], list[int], list[float]],
) -> None:
    good, bad = told_span(1, [1], [2], [-0.5]), told_span(2, *wrong)
    for spans in ((good, bad), (bad, good)):
        trajectory = assemble(*spans)
        assert called(trajectory) == [span_id(1)]
        assert not any(drop.is_llm_call for drop in trajectory.drops)


def test_a_record_without_its_prompt_has_it_from_a_span_with_the_same_response() -> None:
    record = proxy_span(1, response=[4, 5], prompt_token_ids=None, response_logprobs=None)
    (triplet,) = assemble(record, told_span(2, [7], [4, 5], [-0.5, -0.25])).triplets
    assert (unpack_int32(triplet.prompt_token_ids).tolist(), triplet.span_id) == ([7], span_id(1))
    assert triplet.response_logprobs == pack_float32([-0.5, -0.25])
    other = assemble(record, told_span(2, [7], [4, 6], [-0.5, -0.25]))
    assert not other.triplets, "of another response it is not its own"
