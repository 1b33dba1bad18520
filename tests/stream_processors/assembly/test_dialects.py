"""Every place where tracers and servers hide token ids gives the same call."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lightstream.schemas.packing import pack_float32, pack_int32
from lightstream.schemas.records import DropReason, SpanRecord, SpanStatus
from lightstream.stream_processors.core.dialects import ReadCall, agent_name, read_calls, unflattened
from lightstream.stream_processors.core.dialects._table import LITERAL_CHARS_MAX, parse_literal

from .build import assemble, framework_span

PROMPT, RESPONSE, LOGPROBS = [11, 12, 13], [21, 22], [-0.25, -1.5]
CONTENT = [{"token": "a", "logprob": -0.25, "top_logprobs": []}, {"token": "b", "logprob": -1.5}]


def chat(choice: dict[str, Any], **top: Any) -> dict[str, Any]:
    """An answer of a chat completions server."""
    message = {"role": "assistant", "content": "hi"}
    first = {"index": 0, "finish_reason": "stop", "message": message, **choice}
    return {"id": "resp-1", "model": "policy@3", "object": "chat.completion", "choices": [first], **top}


VLLM = chat({"token_ids": RESPONSE, "logprobs": {"content": CONTENT}}, prompt_token_ids=PROMPT)
SGLANG = chat({"prompt_token_ids": PROMPT, "response_token_ids": RESPONSE, "logprobs": {"content": CONTENT}})
SGLANG_META = chat(
    {"meta_info": {"output_token_logprobs": [[-0.25, 21, "a"], [-1.5, 22, "b"]]}}, sglext={"input_ids": PROMPT}
)
SGLANG_EXTENSION = chat({"logprobs": {"content": CONTENT}}, sglext={"input_ids": PROMPT, "output_ids": RESPONSE})
LITELLM_SDK = chat(
    {"provider_specific_fields": {"token_ids": RESPONSE}, "logprobs": {"content": CONTENT}}, prompt_token_ids=PROMPT
)
COMPLETIONS = chat(
    {"text": "hi", "token_ids": RESPONSE, "logprobs": {"token_logprobs": LOGPROBS}}, prompt_token_ids=PROMPT
)
PATCHED_VLLM = chat({"logprobs": {"content": CONTENT}}, prompt_token_ids=PROMPT, response_token_ids=[RESPONSE])
GENERATION = {"prompt_token_ids": PROMPT, "generation_token_ids": RESPONSE, "generation_log_probs": LOGPROBS}
NEMO_GYM_CHAT = chat({"message": {"role": "assistant", "content": "hi", **GENERATION}})
NEMO_GYM_RESPONSE = {"id": "resp-1", "model": "policy@3", "output": [{"type": "message", **GENERATION}]}
ATIF = {
    "schema_version": "ATIF-v1.4",
    "agent": {"name": "solver", "model_name": "policy@3"},
    "steps": [
        {"source": "user", "message": "hello"},
        {
            "source": "agent",
            "message": "hi",
            "metrics": {"prompt_token_ids": PROMPT, "completion_token_ids": RESPONSE, "logprobs": LOGPROBS},
        },
    ],
}
LLM_KIND = {"openinference.span.kind": "LLM"}


def raw_request(**values: Any) -> SpanRecord:
    """LiteLLM's raw span: lists and dictionaries written as Python."""
    attributes = {f"llm.hosted_vllm.{key}": value for key, value in values.items()}
    return framework_span(1, attributes, name="raw_gen_ai_request")


def body(value: object, name: str = "gen_ai.response.body") -> SpanRecord:
    """A span that keeps an answer as JSON."""
    return framework_span(1, {name: json.dumps(value)})


SPANS: dict[str, SpanRecord] = {
    "canonical lists": framework_span(
        1,
        {
            "lightstream.prompt_token_ids": PROMPT,
            "lightstream.response_token_ids": tuple(RESPONSE),
            "lightstream.response_logprobs": LOGPROBS,
            "gen_ai.response.id": "resp-1",
            "lightstream.policy_version": 3,
            "gen_ai.response.finish_reasons": ["stop"],
        },
    ),
    "canonical packed": framework_span(
        1,
        {
            "lightstream.prompt_token_ids": pack_int32(PROMPT),
            "lightstream.response_token_ids": pack_int32(RESPONSE),
            "lightstream.response_logprobs": pack_float32(LOGPROBS),
            "gen_ai.response.id": "resp-1",
            "gen_ai.response.model": "policy@3",
            "gen_ai.response.finish_reasons": ["stop"],
        },
    ),
    "agent lightning": framework_span(
        1,
        {
            "prompt_token_ids": PROMPT,
            "response_token_ids": RESPONSE,
            "logprobs.content": json.dumps(CONTENT),
            "gen_ai.response.id": "resp-1",
            "gen_ai.response.model": "policy@3",
            "gen_ai.response.finish_reasons": ["stop"],
        },
        name="openai.chat.completion",
    ),
    "agent lightning weave": framework_span(
        1,
        {
            "agentlightning.operation.output.id": "resp-1",
            "agentlightning.operation.output.model": "policy@3",
            "agentlightning.operation.output.prompt_token_ids": PROMPT,
            "agentlightning.operation.output.choices.0.token_ids": RESPONSE,
            "agentlightning.operation.output.choices.0.finish_reason": "stop",
            "agentlightning.operation.output.choices.0.logprobs": json.dumps({"content": CONTENT}),
        },
    ),
    "openinference vllm": framework_span(1, LLM_KIND | {"output.value": json.dumps(VLLM)}),
    "openinference sglang": framework_span(1, LLM_KIND | {"output.value": json.dumps(SGLANG)}),
    "openinference structured": framework_span(1, LLM_KIND | {"output.value": VLLM}),
    "body vllm": body(VLLM),
    "body sglang": body(SGLANG),
    "body sglang meta": body(SGLANG_META),
    "body sglang extension": body(SGLANG_EXTENSION),
    "body litellm sdk": body(LITELLM_SDK),
    "body completions": body(COMPLETIONS),
    "body patched vllm": body(PATCHED_VLLM),
    "body nemo gym chat": body(NEMO_GYM_CHAT),
    "nemo gym response": body(NEMO_GYM_RESPONSE, "nemo_gym.response"),
    "mlflow": body(VLLM, "mlflow.spanOutputs"),
    "langfuse": body(VLLM, "langfuse.observation.output"),
    "openllmetry entity": body(VLLM, "traceloop.entity.output"),
    "atif": body(ATIF, "atif.trajectory"),
    "litellm legacy": raw_request(
        id="resp-1",
        model="policy@3",
        prompt_token_ids=str(PROMPT),
        choices=str(chat({"token_ids": RESPONSE, "logprobs": {"content": CONTENT, "refusal": None}})["choices"]),
    ),
    "litellm legacy patched vllm": raw_request(
        id="resp-1", model="policy@3", prompt_token_ids=str(PROMPT), response_token_ids=str([RESPONSE])
    ),
}
WITHOUT_LOGPROBS = {"litellm legacy patched vllm"}
WITHOUT_FINISH = {"litellm legacy patched vllm", "atif", "nemo gym response"}


@pytest.mark.parametrize("name", SPANS)
def test_each_dialect_gives_the_same_call(name: str) -> None:
    (call,) = read_calls(SPANS[name])
    assert call.prompt_token_ids == pack_int32(PROMPT)
    assert call.response_token_ids == pack_int32(RESPONSE)
    assert call.response_logprobs == (None if name in WITHOUT_LOGPROBS else pack_float32(LOGPROBS))
    assert call.response_id == (None if name == "atif" else "resp-1")
    assert call.policy_version == 3
    assert call.finish_reason == (None if name in WITHOUT_FINISH else "stop")
    assert call.problem is None
    assert call.sources is not None
    assert {"prompt_token_ids", "response_token_ids"} <= set(call.sources)
    (triplet,) = assemble(SPANS[name]).triplets
    assert triplet.response_mask == b"\x01\x01"


def test_where_each_field_was_found_is_told() -> None:
    (call,) = read_calls(SPANS["openinference vllm"])
    assert call.sources == {
        "prompt_token_ids": "output.value:prompt_token_ids",
        "response_token_ids": "output.value:choices[0].token_ids",
        "response_logprobs": "output.value:choices[0].logprobs",
    }


def test_each_choice_is_a_call() -> None:
    answer = chat({"token_ids": [1]}, prompt_token_ids=PROMPT)
    answer["choices"].append({"index": 1, "token_ids": [2], "finish_reason": "length"})
    trajectory = assemble(body(answer))
    assert [(t.choice_index, t.response_token_ids) for t in trajectory.triplets] == [
        (0, pack_int32([1])),
        (1, pack_int32([2])),
    ]
    assert [t.finish_reason for t in trajectory.triplets] == ["stop", "length"]


@pytest.mark.parametrize("place", ["sglext", "response_token_ids"])
def test_token_ids_beside_the_choices_are_those_of_the_only_one_or_a_list_for_each(place: str) -> None:
    def told(ids: list[Any], *indices: int) -> list[bytes | None]:
        beside = {"sglext": {"input_ids": PROMPT, "output_ids": ids}} if place == "sglext" else {place: ids}
        choices = [{"index": index} for index in indices]
        answer = {"prompt_token_ids": PROMPT, **beside, "choices": choices}
        return [call.response_token_ids for call in read_calls(framework_span(1, LLM_KIND | {"output.value": answer}))]

    one, two = pack_int32([1]), pack_int32([2, 3])
    assert told([1], 0) == [one]
    assert told([[1]], 0) == [one]
    assert told([1], 0, 1) == [None, None]
    assert told([[1], [2, 3]], 1, 0) == [two, one]
    assert told([[1]], 0, 1) == [one, None]


TOKENLESS: dict[str, SpanRecord] = {
    "openllmetry": framework_span(1, {"llm.request.type": "chat"}, name="openai.chat"),
    "agentops": framework_span(1, {"agentops.span.kind": "llm"}, name="openai.chat.completion"),
    "gen_ai": framework_span(1, {"gen_ai.operation.name": "chat"}, name="chat gpt"),
    "vercel": framework_span(1, {"ai.response.id": "x"}, name="ai.generateText.doGenerate"),
    "langfuse": framework_span(1, {"langfuse.observation.type": "generation"}),
    "redacted": framework_span(1, LLM_KIND | {"output.value": "__REDACTED__"}),
    "api response": framework_span(1, LLM_KIND | {"output.value": "<APIResponse [200 OK] type=X>"}),
    "langchain": framework_span(
        1,
        LLM_KIND
        | {"output.value": json.dumps({"generations": [[{"generation_info": {"logprobs": {"content": CONTENT}}}]]})},
    ),
    "litellm legacy object": raw_request(choices="[Choices(finish_reason='stop', index=0)]"),
}


@pytest.mark.parametrize("name", TOKENLESS)
def test_a_call_without_tokens_is_dropped_with_its_reason(name: str) -> None:
    trajectory = assemble(TOKENLESS[name])
    assert [drop.reason for drop in trajectory.drops] == [DropReason.NO_TOKEN_IDS]
    assert trajectory.call_count == 1


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"openinference.span.kind": "CHAIN", "output.value": json.dumps(VLLM)},
        {"gen_ai.operation.name": "embeddings"},
        {"gen_ai.operation.name": "invoke_agent", "gen_ai.response.id": "resp-1"},
        {"traceloop.entity.output": json.dumps({"answer": 4})},
        {"langfuse.observation.output": json.dumps(chat({}))},
    ],
)
def test_other_spans_are_no_calls(attributes: dict[str, Any]) -> None:
    assert read_calls(framework_span(1, attributes)) == []


@pytest.mark.parametrize(
    ("prompt", "response", "logprobs", "reason"),
    [
        (["a"], [1], None, DropReason.BAD_TOKEN_IDS),
        ([1], [2**31], None, DropReason.BAD_TOKEN_IDS),
        ([1], [1.0], None, DropReason.BAD_TOKEN_IDS),
        ([1], [True], None, DropReason.BAD_TOKEN_IDS),
        ([1], "abc", None, DropReason.BAD_TOKEN_IDS),
        ([1], [-1], None, DropReason.BAD_TOKEN_IDS),
        ([1], [1], ["x"], DropReason.BAD_LOGPROBS),
        ([1], [1], [1e300], DropReason.BAD_LOGPROBS),
        ([1], [1], 7, DropReason.BAD_LOGPROBS),
        ([1], [1], '[{"token": "a", "logprob": -0.1}, {"tok', DropReason.BAD_LOGPROBS),
        ([1], [1], "none", DropReason.BAD_LOGPROBS),
        ([1], [1], {"content": "[-0."}, DropReason.BAD_LOGPROBS),
        ([1], [1], [-1.0, -2.0], DropReason.LOGPROBS_LENGTH_MISMATCH),
        (None, [1], None, DropReason.NO_TOKEN_IDS),
        ([1], [], None, DropReason.EMPTY_RESPONSE),
    ],
)
def test_unusable_values_become_drops(prompt: Any, response: Any, logprobs: Any, reason: DropReason) -> None:
    attributes = {
        "lightstream.prompt_token_ids": prompt,
        "lightstream.response_token_ids": response,
        "lightstream.response_logprobs": logprobs,
    }
    trajectory = assemble(framework_span(1, attributes), SPANS["atif"].model_copy(update={"span_id": "f" * 16}))
    assert [drop.reason for drop in trajectory.drops] == [reason]
    assert len(trajectory.triplets) == 1


@pytest.mark.parametrize("logprobs", ["", " ", "null", None, {"content": None}, {"content": ""}])
def test_log_probabilities_that_are_not_told_cost_nothing(logprobs: Any) -> None:
    ids = {"lightstream.prompt_token_ids": [1], "lightstream.response_token_ids": [1]}
    (triplet,) = assemble(framework_span(1, ids | {"lightstream.response_logprobs": logprobs})).triplets
    assert triplet.response_logprobs is None


def test_a_failed_span_without_tokens_is_a_failed_call() -> None:
    span = framework_span(1, {"gen_ai.operation.name": "chat"}, status=SpanStatus.ERROR, status_message="rate limited")
    (drop,) = assemble(span).drops
    assert (drop.reason, drop.detail) == (DropReason.CALL_FAILED, "rate limited")
    drops = assemble(body({"id": "e", "error": {"message": "no"}, "response_token_ids": None})).drops
    assert drops == []  # a body without token ids is no sign of a call


def test_python_literals_are_bounded_and_never_run() -> None:
    assert parse_literal("[{'a': None, 'b': (1, 2)}]") == [{"a": None, "b": (1, 2)}]
    assert parse_literal("[1, 2]") == [1, 2]
    assert parse_literal([1]) == [1]
    assert parse_literal("{1: 2, 'a': {(1, 2): 3}}") == {1: 2, "a": {(1, 2): 3}}
    too_long = ["0x" + "f" * 6_000, "[-0b" + "1" * 20_000 + "]"]
    assert [parse_literal(text) for text in too_long] == [None] * len(too_long)
    hostile = ["__import__('os')", "[" * 10_000, "-" * 100_000 + "1", "{[]: 1}", "1" + "+1" * 50_000, "\0", "["]
    assert [parse_literal(text) for text in hostile] == [None] * len(hostile)
    assert parse_literal("[" + "(), " * (LITERAL_CHARS_MAX // 4) + "]") is None


def test_a_number_too_long_to_be_written_is_no_value() -> None:
    function = "{'name': 'f', 'arguments': 0x" + "f" * 6_000 + "}"
    message = "{'role': 'assistant', 'content': 'x', 'tool_calls': [{'function': " + function + "}]}"
    (drop,) = assemble(raw_request(choices="[{'message': " + message + "}]")).drops
    assert drop.reason == DropReason.NO_TOKEN_IDS


AGENTS: list[tuple[dict[str, Any], str, str | None]] = [
    ({"agent.name": "a", "gen_ai.agent.name": "b"}, "s", "a"),
    ({"gen_ai.agent.name": "b", "graph.node.id": "n"}, "s", "b"),
    ({"agentops.span.kind": "agent", "operation.name": "c"}, "s", "c"),
    ({"agentops.span.kind": "tool", "operation.name": "c"}, "s", None),
    ({"recipient_agent_type": "d"}, "s", "d"),
    ({"langchain.chain.type": "e"}, "s", "e"),
    ({"executor.id": "f"}, "s", "f"),
    ({"graph.node.id": "g"}, "s", "g"),
    ({"type": "agent", "agentlightning.operation.input.name": "h"}, "s", "h"),
    ({"lc_name": "i"}, "langchain.Chain.run", "i"),
    ({"lc_name": "i"}, "other", None),
    ({"agent.name": ""}, "s", None),
    ({"agent.name": 7}, "s", None),
]


@pytest.mark.parametrize(("attributes", "name", "expected"), AGENTS)
def test_agent_names(attributes: dict[str, Any], name: str, expected: str | None) -> None:
    assert agent_name(framework_span(1, attributes, name=name)) == expected


def test_reading_never_changes_the_span() -> None:
    for span in [*SPANS.values(), *TOKENLESS.values()]:
        before = span.model_copy(deep=True)
        calls: list[ReadCall] = read_calls(span)
        assert calls
        assert span == before


def test_a_mapping_among_flat_names_is_not_changed() -> None:
    told = "gen_ai.completion.0.tool_calls"
    attributes: dict[str, Any] = {"gen_ai.operation.name": "chat", "gen_ai.completion.0.role": "assistant"}
    attributes |= {told: {"x": {"y": 1}}, f"{told}.0.name": "f", f"{told}.x.z": 2, f"{told}.x.y": 3}
    span = framework_span(1, attributes)
    before = span.model_copy(deep=True)
    assert [drop.reason for drop in assemble(span, span).drops] == [DropReason.NO_TOKEN_IDS]
    assert span == before
    assert unflattened(span.attributes, told) == {"0": {"name": "f"}, "x": {"z": 2, "y": 3}}
    merged = {"x": {"y": 3, "z": 2}, "0": {"name": "f"}}
    assert unflattened(span.attributes, "gen_ai.completion") == [{"role": "assistant", "tool_calls": merged}]
    assert span == before


UNTOLD_CHOICE = {"index": 1, "message": {"role": "assistant", "content": "x"}}
HALF_TOLD = {"prompt_token_ids": [1], "choices": [{"index": 0, "token_ids": [2]}, UNTOLD_CHOICE]}
WEAVES = "agentlightning.operation.output"


@pytest.mark.parametrize(
    "attributes",
    [
        LLM_KIND | {"output.value": HALF_TOLD},
        {"langfuse.observation.type": "generation", "langfuse.observation.output": json.dumps(HALF_TOLD)},
        {"gen_ai.response.body": HALF_TOLD},
        {
            f"{WEAVES}.prompt_token_ids": [1],
            f"{WEAVES}.choices.0.token_ids": [2],
            f"{WEAVES}.choices.1.message.content": "x",
        },
    ],
)
def test_a_choice_without_tokens_beside_one_with_them_is_dropped_with_its_reason(attributes: dict[str, Any]) -> None:
    trajectory = assemble(framework_span(1, attributes))
    assert [triplet.choice_index for triplet in trajectory.triplets] == [0]
    assert [(drop.reason, drop.choice_index) for drop in trajectory.drops] == [(DropReason.NO_TOKEN_IDS, 1)]


def test_a_message_of_anthropics_quotes_its_response() -> None:
    message = {"id": "msg_1", "type": "message", "content": [], "model": "policy@3", "stop_reason": "end_turn"}
    (call,) = read_calls(framework_span(1, LLM_KIND | {"output.value": json.dumps(message)}))
    assert (call.response_id, call.model, call.policy_version, call.finish_reason) == (
        "msg_1",
        "policy@3",
        3,
        "end_turn",
    )


def test_counting_tokens_is_no_call() -> None:
    assert read_calls(framework_span(1, LLM_KIND, name="messages.count_tokens")) == []


@pytest.mark.parametrize(
    ("attributes", "name"),
    [
        ({"metadata": '{"lc_agent_name": "solver", "langgraph_node": "model"}'}, "solver"),
        ({"metadata": '{"langgraph_node": "writer"}'}, "writer"),
        ({"metadata": '{"langgraph_node": 7}'}, None),
        ({"metadata": "langgraph_node"}, None),
        ({"openinference.span.kind": "AGENT"}, "solver"),
        ({"openinference.span.kind": "AGENT", "graph.node.id": "planner"}, "planner"),
        ({"openinference.span.kind": "CHAIN"}, None),
    ],
)
def test_agents_are_named_by_what_langchain_and_openinference_say(attributes: dict[str, str], name: str | None) -> None:
    assert agent_name(framework_span(1, attributes, name="solver.run")) == name
