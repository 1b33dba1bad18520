"""Spans as the store on Kafka gives them hold what only the proxy knew, and the adapters find it there."""

from __future__ import annotations

import json
import math

from lightstream.schemas.llm_attributes import call_of_attributes
from lightstream.schemas.packing import pack_float32
from lightstream.schemas.records import SpanRecord
from lightstream.schemas.types import Span, Triplet
from lightstream.store_views.stores.kafka.span_record import span_of_row
from lightstream.store_views.stores.kafka.spans_sql import spans_page_sql
from lightstream.store_views.stores.queries import SpanQuery
from lightstream.stream_processors.adapters import LlmProxyTraceToTriplet, TracerTraceToTriplet, TraceToMessages
from tests.store_views.exports.test_exports import asks
from tests.store_views.log_file import LogFile
from tests.stream_processors.assembly.build import ROLLOUT, framework_span, opened, proxy_span, reward_span

ALL = SpanQuery(sort_by=None)
AGENT_TRACE = "b" * 32
ASKED = [{"role": "user", "content": "Hi"}]
ANSWERED = {"role": "assistant", "content": "Yo"}


def stored(log: LogFile, *spans: SpanRecord) -> list[Span]:
    """The spans by way of the view and JSON, as the store reads them."""
    log.write(opened(), *spans)
    answer = asks(log)(*spans_page_sql(ROLLOUT, None, ALL))
    return [span_of_row(dict(zip(answer["columns"], row, strict=True))) for row in answer["rows"]]


def llm_span(number: int, response_id: str) -> SpanRecord:
    """A call as AgentOps traces it, without token ids, in another trace than the proxy's."""
    attributes = {"gen_ai.response.id": response_id, "gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": "Hi"}
    return framework_span(number, attributes, name="openai.chat.completion", parent=90, trace_id=AGENT_TRACE)


def tokens(triplets: list[Triplet]) -> list[tuple[list[int], list[int]]]:
    return [(triplet.prompt["token_ids"], triplet.response["token_ids"]) for triplet in triplets]


def test_the_tracers_spans_have_the_proxys_token_ids(log: LogFile) -> None:
    spans = stored(
        log,
        framework_span(90, {"agent.name": "writer"}, trace_id=AGENT_TRACE),
        proxy_span(1, [1, 2], [3]),
        llm_span(11, "resp-1"),
        proxy_span(2, [1, 2, 3], [4, 5]),
        llm_span(12, "resp-2"),
        reward_span(20, 0.5, trace_id=AGENT_TRACE, parent=90),
    )
    triplets = TracerTraceToTriplet().adapt(spans)
    assert tokens(triplets) == [([1, 2], [3]), ([1, 2, 3], [4, 5])]
    assert [triplet.response["logprobs"] for triplet in triplets] == [[{"logprob": -0.5}], [{"logprob": -0.5}] * 2]
    assert {triplet.metadata["agent_name"] for triplet in triplets} == {"writer"}
    assert [triplet.reward for triplet in triplets] == [None, 0.5]
    assert tokens(LlmProxyTraceToTriplet().adapt(spans)) == tokens(triplets)


def test_calls_that_only_the_proxy_saw_stay_apart_as_in_the_assembler(log: LogFile) -> None:
    spans = stored(
        log,
        proxy_span(1, [1], [2], response_id="x", choice_index=0),
        proxy_span(2, [1], [3], response_id="x", choice_index=1),
        proxy_span(3, [7], [8], response_id="y"),
        proxy_span(4, [9], [8], response_id="y"),  # the server repeated its id
        proxy_span(5, [1], [], response_id="z", http_status=500, error_message="boom"),
    )
    assert tokens(LlmProxyTraceToTriplet().adapt(spans)) == [([1], [2]), ([1], [3]), ([7], [8]), ([9], [8])]


def test_messages_are_the_proxys(log: LogFile) -> None:
    request, answer = json.dumps({"messages": ASKED}), json.dumps(ANSWERED)
    (span,) = stored(log, proxy_span(1, request_json=request, response_json=answer))
    (line,) = TraceToMessages().adapt([span])
    assert line["messages"] == [*ASKED, ANSWERED]


def test_a_recorded_call_comes_back_whole(log: LogFile) -> None:
    odd = pack_float32([math.nan, -math.inf])
    records = [
        proxy_span(1, policy_version=0, streamed=True, resources_id="v1"),
        proxy_span(2, [], [], response_logprobs=None, http_status=503, error_message="down", finish_reason=None),
        proxy_span(3, [1], [2, 3], response_logprobs=odd),
        proxy_span(4, prompt_token_ids=None, response_token_ids=None, response_logprobs=None, response_id=None),
        framework_span(5, {"gen_ai.response.id": "resp-1"}),
    ]
    spans = stored(log, *records)
    assert [call_of_attributes(span.attributes) for span in spans] == [record.llm_call for record in records]
    assert [span.attributes for span in spans if span.name == "step"] == [{"gen_ai.response.id": "resp-1"}]
