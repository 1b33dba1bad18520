"""Triplets from tracers' spans."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from lightstream.schemas.packing import unpack_int32
from lightstream.schemas.types import Span, Triplet
from lightstream.stream_processors.adapters import (
    Adapter,
    LlmProxyTraceToTriplet,
    RewardMatchPolicy,
    TracerTraceToTriplet,
)
from lightstream.stream_processors.adapters._records import record_of
from lightstream.stream_processors.core.assembly import Assembler, AssemblyRules
from lightstream.stream_processors.core.credit import register_credit_rule

from ..assembly.build import closed, opened
from .build import agent, call, reward, span

SIBLING = TracerTraceToTriplet(repair_hierarchy=False, reward_match=RewardMatchPolicy.FIRST_SIBLING)


def rewards_of(triplets: list[Triplet]) -> dict[str, float | None]:
    return {triplet.metadata["response_id"]: triplet.reward for triplet in triplets}


def test_a_triplet_holds_what_the_span_says() -> None:
    messages = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": "http://x/1.png"}}]
    attributes = {
        "prompt_token_ids": [1, 2, 3],
        "response_token_ids": [4, 5],
        "logprobs.content": json.dumps([{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -1.0}]),
        "gen_ai.response.id": "chatcmpl-1",
        "gen_ai.request.model": "policy",
        "gen_ai.request.functions.0.name": "look",
        "gen_ai.response.model": "policy@1",
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": json.dumps(messages),
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": "A cat.",
    }
    (triplet,) = TracerTraceToTriplet()([span("a", name="openai.chat.completion", attributes=attributes)])
    assert triplet == Triplet(
        prompt={
            "token_ids": [1, 2, 3],
            "raw_content": [{"role": "user", "content": json.dumps(messages)}],
            "image_urls": ["http://x/1.png"],
        },
        response={
            "token_ids": [4, 5],
            "raw_content": [{"role": "assistant", "content": "A cat."}],
            "logprobs": [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -1.0}],
        },
        reward=None,
        metadata={
            "request": {"model": "policy", "functions": [{"name": "look"}]},
            "response": {"id": "chatcmpl-1", "model": "policy@1"},
            "response_id": "chatcmpl-1",
            "agent_name": "*",
        },
    )


def test_weave_operations_are_read() -> None:
    attributes = {
        "agentlightning.operation.input.model": "policy",
        "agentlightning.operation.input.messages.0.role": "user",
        "agentlightning.operation.input.messages.0.content": "hi",
        "agentlightning.operation.output.id": "resp-1",
        "agentlightning.operation.output.prompt_token_ids": [1, 2],
        "agentlightning.operation.output.choices.0.token_ids": [3],
        "agentlightning.operation.output.choices.0.message.content": "yo",
    }
    (triplet,) = TracerTraceToTriplet().adapt([span("a", name="openai.chat.completions.create", attributes=attributes)])
    assert (triplet.prompt["token_ids"], triplet.response["token_ids"]) == ([1, 2], [3])
    assert triplet.prompt["raw_content"] == [{"role": "user", "content": "hi"}]
    assert triplet.response["raw_content"][0]["message"] == {"content": "yo"}
    assert triplet.metadata["request"] == {"model": "policy"}
    assert triplet.metadata["response"] == {"id": "resp-1"}


@pytest.mark.parametrize(
    "attributes",
    [
        {"lightstream.prompt_token_ids": [1], "lightstream.response_token_ids": [2]},
        {
            "openinference.span.kind": "LLM",
            "output.value": json.dumps({"prompt_token_ids": [1], "choices": [{"token_ids": [2]}]}),
        },
        {"prompt_token_ids": (1,), "response_token_ids": (2,)},
    ],
    ids=["canonical", "openinference", "tuples"],
)
def test_token_ids_are_read_in_any_dialect(attributes: dict[str, Any]) -> None:
    (triplet,) = TracerTraceToTriplet().adapt([span("a", name="openai.chat.completion", attributes=attributes)])
    assert (triplet.prompt["token_ids"], triplet.response["token_ids"]) == ([1], [2])


def test_token_ids_are_taken_from_another_span_of_the_same_call() -> None:
    framework = span("a", name="openai.chat.completion", attributes={"gen_ai.response.id": "x"})
    proxy = call("b", name="raw", response_id="x", at=1, trace_id="f" * 32, ids=(7, 8))
    (triplet,) = TracerTraceToTriplet().adapt([framework, proxy])
    assert (triplet.prompt["token_ids"], triplet.response["token_ids"]) == ([7], [8])


def test_a_call_without_token_ids_has_empty_lists_unless_they_are_to_be_skipped() -> None:
    bad = {"prompt_token_ids": [1], "response_token_ids": ["text"], "gen_ai.response.id": "y"}
    spans = [span("a", name="chat_model.llm"), span("b", name="openai.chat.completion", at=1, attributes=bad)]
    assert [t.response["token_ids"] for t in TracerTraceToTriplet().adapt(spans)] == [[], []]
    assert TracerTraceToTriplet(_skip_empty_token_spans=True).adapt(spans) == []


def test_only_agents_that_match_and_the_nearest_decides() -> None:
    spans = [
        agent("root", "planner"),
        call("a", "root", at=1),
        agent("sub", "searcher", "root", at=2),
        call("b", "sub", at=3),
        call("c", at=4),
    ]
    named = {t.metadata["response_id"]: t.metadata["agent_name"] for t in TracerTraceToTriplet().adapt(spans)}
    assert named == {"resp-a": "planner", "resp-b": "searcher", "resp-c": "*"}
    of_planner = TracerTraceToTriplet(agent_match="^plan", repair_hierarchy=False).adapt(spans)
    assert [t.metadata["response_id"] for t in of_planner] == ["resp-a"]
    with_name = TracerTraceToTriplet(llm_call_match="^my_llm$").adapt([*spans, span("d", "root", name="my_llm", at=9)])
    assert len(with_name) == 1


def test_the_agent_that_a_call_itself_names_is_of_what_is_below_it_alone() -> None:
    spans = [
        agent("root", "planner"),
        call("a", "root", at=1, attributes={"agent.name": "searcher"}),
        call("b", "a", at=2, ids=(3, 4)),
        call("c", at=3, ids=(5, 6), attributes={"agent.name": "planner"}),
    ]
    named = {
        t.metadata["response_id"]: t.metadata["agent_name"]
        for t in TracerTraceToTriplet(repair_hierarchy=False).adapt(spans)
    }
    assert named == {"resp-a": "planner", "resp-b": "searcher", "resp-c": "*"}


def test_the_choices_of_a_span_with_another_llm_span_inside_are_a_triplet_each() -> None:
    answer = {"id": "R", "prompt_token_ids": [1], "choices": [{"token_ids": [2]}, {"token_ids": [3]}]}
    outer = {"openinference.span.kind": "LLM", "output.value": json.dumps(answer)}
    spans = [
        span("outer", name="openai.chat.completion", attributes=outer),
        span("inner", "outer", name="openai.chat", at=1, attributes={"gen_ai.operation.name": "chat"}),
    ]
    triplets = TracerTraceToTriplet().adapt(spans)
    assert [(t.response["token_ids"], t.metadata["choice_index"]) for t in triplets] == [([2], 0), ([3], 1)]


def test_a_judges_calls_are_left_out() -> None:
    operation = {"agentlightning.operation.name": "agentlightning.reward"}
    agentops = {"agentops.task.output": json.dumps({"type": "reward", "value": 0.5})}
    spans = [
        call("a", at=1),
        span("judge", name="agentlightning.operation", attributes=operation, at=2),
        call("b", "judge", at=3),
        span("old", name="reward.task", attributes=agentops, at=4),
        call("c", "old", at=5),
    ]
    assert rewards_of(TracerTraceToTriplet().adapt(spans)) == {"resp-a": 0.5}
    assert len(TracerTraceToTriplet(exclude_llm_call_in_reward=False).adapt(spans)) == 3


def test_spans_of_one_call_count_once() -> None:
    spans = [
        call("a", at=1, response_id="x"),
        span("wrapper", name="chat_model.llm", at=2),
        call("b", "wrapper", at=3, response_id="y"),
        call("c", "b", at=4, response_id=None, attributes={"prompt_token_ids": [1]}),
        call("again", at=5, response_id="x"),
        call("a", at=1, response_id="x"),
        call("unlike", "a", at=6, response_id=None, ids=(8, 9)),
    ]
    ids = [t.metadata["response_id"] for t in TracerTraceToTriplet(repair_hierarchy=False).adapt(spans)]
    assert ids == ["x", None, "y"]


def test_a_reward_goes_to_the_last_call_before_it_that_has_none() -> None:
    spans = [
        call("a", at=1),
        call("b", at=2),
        reward("r1", 0.1, at=3),
        reward("r2", 0.2, at=4),
        reward("r3", 0.3, at=5),
    ]
    assert rewards_of(TracerTraceToTriplet().adapt(spans)) == {"resp-a": 0.2, "resp-b": 0.1}


def test_the_clock_decides_nothing_about_rewards() -> None:
    early = reward("r", 1.0, at=3, start_time=1.999, end_time=1.999)  # before the call's end at 3.0, by another clock
    spans = [call("a", at=1, end_time=1.5), call("b", at=2), early]
    assert rewards_of(TracerTraceToTriplet().adapt(spans)) == {"resp-a": None, "resp-b": 1.0}


def test_a_link_stands_above_every_policy() -> None:
    spans = [
        call("a", at=1),
        call("b", at=2),
        reward("r", 0.7, at=3, link={"gen_ai.response.id": "resp-a"}),
        reward("s", 0.9, at=4, link={"span_id": "nowhere"}),
    ]
    for adapter in (TracerTraceToTriplet(), SIBLING):
        assert rewards_of(adapter.adapt(spans)) == {"resp-a": 0.7, "resp-b": None}


def test_siblings_are_looked_at_in_log_order() -> None:
    spans = [
        span("root", at=0, end_time=100.0),
        span("one", "root", at=1, end_time=10.0),
        call("a", "one", at=2),
        span("two", "root", at=3, end_time=10.0),
        call("b", "two", at=4),
        reward("r", 0.5, "one", at=5),
        reward("lost", 0.6, "root", at=6),
    ]
    assert rewards_of(SIBLING.adapt(spans)) == {"resp-a": 0.5, "resp-b": None}
    assert rewards_of(TracerTraceToTriplet().adapt(spans)) == {"resp-a": 0.6, "resp-b": 0.5}


def test_one_malformed_reward_spoils_nothing() -> None:
    spans = [call("a", at=1), reward("bad", "text", at=2), reward("nan", float("nan"), at=3), reward("good", 0.5, at=4)]
    assert rewards_of(TracerTraceToTriplet().adapt(spans)) == {"resp-a": 0.5}


def test_the_final_reward_takes_the_place_of_the_last_ones() -> None:
    tree = TracerTraceToTriplet()._tree([call("a", at=1), call("b", at=2), reward("r", 0.5, at=3)])  # pyright: ignore[reportPrivateUsage]  # what adapt() builds
    assert [t.reward for t in tree.to_trajectory(final_reward=1.0)] == [None, 1.0]
    found = tree.find_llm_calls(llm_call_match="openai", agent_match=None, within_matching_subtree="*")
    assert [(node.id, name) for node, name in found] == [("a", "*"), ("b", "*")]
    assert tree.match_rewards("first_occurrence", [node for node, _ in found]) == {"b": 0.5}


def sdk_spans() -> list[ReadableSpan]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    with tracer.start_as_current_span("run", attributes={"agent.name": "planner"}):
        for number in range(2):
            attributes: dict[str, Any] = {"prompt_token_ids": [number], "response_token_ids": [9]}
            attributes["gen_ai.response.id"] = f"x{number}"
            tracer.start_span("openai.chat.completion", attributes=attributes).end()
            reward_attributes: dict[str, Any] = {
                "agentlightning.reward.0.name": "primary",
                "agentlightning.reward.0.value": number / 2,
            }
            tracer.start_span("agentlightning.annotation", attributes=reward_attributes).end()
    return list(exporter.get_finished_spans())


def test_spans_of_the_sdk_are_adapted_as_they_are() -> None:
    triplets = TracerTraceToTriplet().adapt(sdk_spans())
    assert rewards_of(triplets) == {"x0": 0.0, "x1": 0.5}
    assert {t.metadata["agent_name"] for t in triplets} == {"planner"}


def test_proxy_spans_are_matched_by_sequence_alone() -> None:
    raw = {"llm.hosted_vllm.id": "q", "llm.hosted_vllm.prompt_token_ids": "[1, 2]"}
    raw |= {"llm.hosted_vllm.choices": "[{'token_ids': [3], 'index': 0}]"}
    spans = [
        reward("r", 1.0, at=4, start_time=0.0),
        span("a", at=2, name="raw_gen_ai_request", attributes=raw, start_time=99.0),
        span("b", at=1, name="litellm_request", attributes={"gen_ai.response.id": "q"}),
        call("c", at=3, name="litellm_request", ids=(5, 6), start_time=50.0),
        call("framework", at=5, response_id="q"),
    ]
    found = LlmProxyTraceToTriplet().adapt(spans)
    assert [(t.prompt, t.response, t.reward, t.metadata) for t in found] == [
        ({"token_ids": [1, 2]}, {"token_ids": [3]}, None, {"response_id": "q"}),
        ({"token_ids": [5]}, {"token_ids": [6]}, 1.0, {"response_id": "resp-c"}),
    ]


def random_spans(seed: int) -> list[Span]:
    """A tree of agents with calls of distinct tokens, some told twice, and rewards with and without links."""
    draw = random.Random(seed)
    spans = [agent("s0", "root", start_time=0.0, end_time=1000.0, at=1)]
    for i in range(1, draw.randint(2, 25)):
        parent = f"s{draw.randrange(i)}"
        times = {"start_time": draw.random() * 50, "end_time": 50 + draw.random() * 50}
        kind = draw.random()
        if kind < 0.5:
            spans.append(call(f"s{i}", parent, at=i + 1, ids=(i, i + 1000), **times))
        elif kind < 0.6:
            spans.append(agent(f"s{i}", draw.choice("xy"), parent, at=i + 1, **times))
        elif kind < 0.8:
            link = {"gen_ai.response.id": f"resp-s{draw.randrange(25)}"} if draw.random() < 0.4 else None
            spans.append(reward(f"s{i}", draw.random(), parent, at=i + 1, link=link, **times))
        else:
            spans.append(span(f"s{i}", parent, at=i + 1, **times))
    return spans


@given(st.integers(0, 100_000), st.sampled_from(list(RewardMatchPolicy)), st.booleans())
def test_every_call_is_one_triplet_whatever_the_order_and_however_often_spans_come(
    seed: int, policy: RewardMatchPolicy, repaired: bool
) -> None:
    spans = random_spans(seed)
    adapter = TracerTraceToTriplet(repaired, reward_match=policy, exclude_llm_call_in_reward=False)
    triplets = adapter.adapt(spans)
    asked = [s.attributes["prompt_token_ids"] for s in spans if s.name == "openai.chat.completion"]
    assert sorted(t.prompt["token_ids"] for t in triplets) == sorted(asked)
    given_out = [t.reward for t in triplets if t.reward is not None]
    emitted = [s.attributes["agentlightning.reward.0.value"] for s in spans if s.name == "agentlightning.annotation"]
    assert set(given_out) <= set(emitted)
    draw = random.Random(seed)
    mixed = [*spans, *draw.choices(spans, k=5)]
    draw.shuffle(mixed)
    again = adapter.adapt(mixed)
    assert sorted(t.prompt["token_ids"] for t in again) == sorted(asked)
    if not repaired:  # what repair does to spans that outlive their parents depends on the order of siblings
        assert sorted(map(plain, again)) == sorted(map(plain, triplets))


def plain(triplet: Triplet) -> tuple[Any, ...]:
    reward = -1.0 if triplet.reward is None else triplet.reward
    return triplet.prompt["token_ids"], reward, triplet.metadata["agent_name"], triplet.metadata["response_id"]


@given(st.integers(0, 100_000))
def test_the_assembler_and_the_adapter_agree(seed: int) -> None:
    spans = random_spans(seed)
    of_attempt = {"attempt_id": "r1-a1"}
    records: list[Any] = [
        opened("r1"),
        *(record_of(span).model_copy(update=of_attempt) for span in spans),
        closed("r1"),
    ]
    rules = AssemblyRules(reward_match="first_occurrence", exclude_calls_in_rewards=False, credit="own_only")
    (trajectory,) = Assembler(rules=rules).on_records(zip(records, range(len(records)), strict=True))
    triplets = TracerTraceToTriplet(repair_hierarchy=False, exclude_llm_call_in_reward=False).adapt(spans)
    theirs = [(list(unpack_int32(t.prompt_token_ids)), t.reward, t.agent_name) for t in trajectory.triplets]
    ours = [(t.prompt["token_ids"], t.reward, t.metadata["agent_name"]) for t in triplets]
    assert sorted(ours, key=str) == sorted(theirs, key=str)


register_credit_rule("own_only", lambda steps, _: [step.reward for step in steps])


def test_adapters_are_called_like_functions() -> None:
    class Count(Adapter[list[int], int]):
        def adapt(self, source: list[int], /) -> int:
            return len(source)

    assert Count()([1, 2, 3]) == 3
    with pytest.raises(NotImplementedError):
        Adapter[int, int]().adapt(1)
