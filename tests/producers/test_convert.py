"""Every part of an OpenTelemetry span arrives in the record, and survives Avro."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

from lightstream.producers.context import AttemptRef
from lightstream.producers.exporter import record_of
from lightstream.schemas.codec import Codec
from lightstream.schemas.errors import RecordError
from lightstream.schemas.packing import pack_float32, pack_int32
from lightstream.schemas.records import LlmCall, SpanRecord, SpanStatus
from lightstream.schemas.records import SpanKind as RecordKind
from tests.producers.support import Spans

CODEC = Codec()
REMOTE = SpanContext(
    0xABC, 0xDEF, is_remote=True, trace_flags=TraceFlags(1), trace_state=TraceState([("vendor", "x"), ("b", "2")])
)


def bare(
    attributes: Mapping[str, Any] | None = None, resource: Mapping[str, Any] | None = None, **fields: Any
) -> ReadableSpan:
    """A span as an exporter may be handed one, with attributes that the SDK's own cleaning never saw."""
    return ReadableSpan(
        name=fields.pop("name", "n"),
        context=SpanContext(1, 2, is_remote=False, trace_flags=TraceFlags(1)),
        resource=Resource(resource or {}),
        attributes=attributes,
        **fields,
    )


def through_avro(record: SpanRecord) -> SpanRecord:
    decoded = CODEC.decode(CODEC.encode(record))
    assert isinstance(decoded, SpanRecord)
    return decoded


def test_everything_of_a_span_arrives() -> None:
    spans = Spans()
    link = Link(REMOTE, {"why": "batch"})
    with spans.tracer.start_as_current_span("parent") as parent:
        span = spans.tracer.start_span(
            "child", kind=SpanKind.CLIENT, attributes={"a": 1}, links=[link], start_time=1_000
        )
        span.add_event("happened", {"n": [1, 2]}, timestamp=1_500)
        span.set_status(Status(StatusCode.ERROR, "broke"))
        span.end(2_000)
    child = spans.ended()[0]
    record = through_avro(record_of(child, AttemptRef("r", "r-a1")))
    context, outer = child.get_span_context(), parent.get_span_context()
    assert context is not None
    assert (record.rollout_id, record.attempt_id) == ("r", "r-a1")
    assert record.trace_id == f"{context.trace_id:032x}" == f"{outer.trace_id:032x}"
    assert (record.span_id, record.parent_id) == (f"{context.span_id:016x}", f"{outer.span_id:016x}")
    assert (record.name, record.kind, record.status) == ("child", RecordKind.CLIENT, SpanStatus.ERROR)
    assert (record.status_message, record.start_unix_nano, record.end_unix_nano) == ("broke", 1_000, 2_000)
    assert record.attributes == {"a": 1}
    (event,) = record.events
    assert (event.name, event.time_unix_nano, event.attributes) == ("happened", 1_500, {"n": [1, 2]})
    (linked,) = record.links
    assert (linked.trace_id, linked.span_id) == (f"{0xABC:032x}", f"{0xDEF:016x}")
    assert (linked.trace_state, linked.attributes, linked.flags) == ("vendor=x,b=2", {"why": "batch"}, 0x301)
    assert record.resource_attributes["telemetry.sdk.language"] == "python"
    assert (record.scope_name, record.scope_version) == ("test-scope", "1.2.3")
    assert record.scope_schema_url == "https://example.org/schema"
    assert record.flags & 0x301 == 0x101
    assert record.llm_call is None


def test_parent_elsewhere_and_trace_state_are_kept() -> None:
    span = ReadableSpan(
        name="n",
        context=SpanContext(1, 2, is_remote=False, trace_flags=TraceFlags(0), trace_state=TraceState([("k", "v")])),
        parent=REMOTE,
        resource=Resource({}, schema_url="https://example.org/r"),
    )
    record = record_of(span)
    assert (record.parent_id, record.flags, record.trace_state) == (f"{0xDEF:016x}", 0x300, "k=v")
    assert record.resource_schema_url == "https://example.org/r"
    assert (record.start_unix_nano, record.end_unix_nano) == (0, 0), "times that were never set"


def test_what_the_sdk_dropped_is_counted() -> None:
    spans = Spans(SpanLimits(max_attributes=2, max_events=1, max_links=1))
    with spans.tracer.start_as_current_span("n", links=[Link(REMOTE), Link(REMOTE), Link(REMOTE)]) as span:
        span.set_attributes({"a": 1, "b": 2, "c": 3})
        span.add_event("one", {"a": 1, "b": 2, "c": 3, "d": 4})
        span.add_event("two", {"a": 1, "b": 2, "c": 3, "d": 4})
    record = through_avro(record_of(spans.ended()[0]))
    assert (record.dropped_attributes_count, record.dropped_events_count, record.dropped_links_count) == (1, 1, 2)
    assert record.events[0].dropped_attributes_count == 2


class Colour(str, enum.Enum):  # noqa: UP042  # its text is not its value
    """A text that is also something else."""

    RED = "red"


attribute_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=10) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=15,
)


def as_tuples(value: Any) -> Any:
    """The SDK hands lists over as tuples."""
    if isinstance(value, list):
        return tuple(as_tuples(item) for item in value)
    if isinstance(value, dict):
        return {key: as_tuples(item) for key, item in value.items()}
    return value


@given(st.dictionaries(st.text(), attribute_values, max_size=5))
def test_attributes_of_every_kind_arrive(attributes: dict[str, Any]) -> None:
    record = through_avro(record_of(bare({key: as_tuples(value) for key, value in attributes.items()})))
    assert record.attributes == attributes


def test_odd_attributes_become_plain_ones() -> None:
    record = through_avro(
        record_of(bare({"enum": Colour.RED, "nan": math.nan, "big": 2**80, "object": Colour, "bytes": bytearray(b"x")}))
    )
    assert record.attributes["enum"] == "red"
    assert math.isnan(record.attributes["nan"])
    assert record.attributes["big"] == str(2**80)
    assert "Colour" in record.attributes["object"]


def test_token_ids_move_packed_into_the_call() -> None:
    attributes = {
        "lightstream.prompt_token_ids": (1, 2, 3),
        "lightstream.response_token_ids": (4, 5),
        "lightstream.response_logprobs": (-0.5, -0.25),
        "lightstream.policy_version": 7,
        "lightstream.resources_id": "run-v7",
        "gen_ai.response.id": "chatcmpl-1",
        "gen_ai.request.model": "policy",
        "gen_ai.response.model": "policy@7",
        "gen_ai.response.finish_reasons": ("stop",),
    }
    record = through_avro(record_of(bare(attributes)))
    assert record.llm_call == LlmCall(
        response_id="chatcmpl-1",
        requested_model="policy",
        response_model="policy@7",
        policy_version=7,
        resources_id="run-v7",
        prompt_token_ids=pack_int32([1, 2, 3]),
        response_token_ids=pack_int32([4, 5]),
        response_logprobs=pack_float32([-0.5, -0.25]),
        finish_reason="stop",
    )
    assert "lightstream.prompt_token_ids" not in record.attributes
    assert record.attributes["gen_ai.response.id"] == "chatcmpl-1"


@pytest.mark.parametrize("broken", [("x",), (2**40,), (1.5,), "1 2 3", 7])
def test_token_ids_that_cannot_be_packed_stay_for_the_assembler_to_report(broken: Any) -> None:
    attributes = {"lightstream.prompt_token_ids": (1,), "lightstream.response_token_ids": broken}
    record = through_avro(record_of(bare(attributes)))
    assert record.llm_call is None
    assert record.attributes["lightstream.prompt_token_ids"] == [1]
    assert "lightstream.response_token_ids" in record.attributes


def test_mismatched_log_probabilities_travel_as_they_are() -> None:
    record = record_of(bare({"lightstream.response_token_ids": (1, 2), "lightstream.response_logprobs": (math.nan,)}))
    assert record.llm_call is not None
    assert record.llm_call.response_logprobs == pack_float32([math.nan])


def test_whose_span_it_is() -> None:
    """Its own attributes say, else the context, else the resource as Agent Lightning sets it."""
    own = {"lightstream.rollout_id": "own", "lightstream.attempt_id": "own-a1", "x": 1}
    resource = {
        "agentlightning.rollout_id": "res",
        "agentlightning.attempt_id": "res-a1",
        "agentlightning.span_sequence_id": 5,
    }
    context = AttemptRef("ctx", "ctx-a1")
    record = record_of(bare(own, resource), context)
    assert (record.rollout_id, record.attempt_id, record.attributes) == ("own", "own-a1", {"x": 1})
    record = record_of(bare({}, resource), context)
    assert (record.rollout_id, record.attempt_id) == ("ctx", "ctx-a1")
    record = record_of(bare({}, resource))
    assert (record.rollout_id, record.attempt_id, record.sequence_id) == ("res", "res-a1", 5)
    record = record_of(bare({}, {"agentlightning.rollout_id": "", "agentlightning.attempt_id": ""}))
    assert (record.rollout_id, record.attempt_id) == (None, None)


def test_span_without_context_is_refused() -> None:
    with pytest.raises(RecordError, match="no span context"):
        record_of(ReadableSpan(name="n"))
