"""What emitters wrote is read back the same: from their own answer, the SDK's span, and the log."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from lightstream.producers import (
    emit_exception,
    emit_message,
    emit_object,
    emit_reward,
    extract_links_from_attributes,
    extract_tags_from_attributes,
    find_final_reward,
    find_reward_spans,
    get_message_value,
    get_object_value,
    get_reward_value,
    get_rewards_from_span,
    is_reward_span,
    make_link_attributes,
    make_tag_attributes,
    query_linked_spans,
)
from lightstream.producers.attributes import (
    filter_and_unflatten_attributes,
    flatten_attributes,
    sanitize_attributes,
    unflatten_attributes,
)
from lightstream.producers.semconv import LinkPydanticModel
from lightstream.schemas.types import Span, SpanCoreFields
from tests.producers.support import Spans


def span(core: SpanCoreFields, **more: Any) -> Span:
    return Span.from_core_fields(core, rollout_id="r", attempt_id="a").model_copy(update=more)


def reward(value: Any, **options: Any) -> Span:
    return span(emit_reward(value, propagate=False, **options))


names = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=8)
plain = st.text(max_size=8) | st.integers() | st.booleans() | st.floats(allow_nan=False)
nested = st.recursive(
    plain, lambda inner: st.lists(inner, min_size=1, max_size=3) | st.dictionaries(names, inner, min_size=1, max_size=3)
)


@given(st.dictionaries(st.from_regex("[a-z]{1,5}", fullmatch=True), nested, max_size=4), st.booleans())
def test_what_was_made_flat_is_nested_again(values: dict[str, Any], expand: bool) -> None:
    flat = flatten_attributes(values, expand_leaf_lists=expand)
    assert all(not isinstance(value, dict) for value in flat.values())
    assert not expand or all(not isinstance(value, list) for value in flat.values())
    # A mapping whose names are 0, 1, 2, … comes back as a list: the same values under the same names.
    again = flatten_attributes(unflatten_attributes(flat), expand_leaf_lists=True)
    assert again == flatten_attributes(values, expand_leaf_lists=True)


def test_names_that_count_from_0_become_a_list() -> None:
    assert unflatten_attributes({"a.0": "x", "a.1": "y", "b.00": 1, "c.1": 2}) == {
        "a": ["x", "y"],
        "b": {"00": 1},
        "c": {"1": 2},
    }
    assert unflatten_attributes({f"a.{'9' * 5000}": 1}) == {"a": {"9" * 5000: 1}}


@given(st.dictionaries(names, st.none() | plain | st.lists(plain | st.none()) | st.binary(), max_size=4))
def test_what_is_sanitised_is_a_span_attribute(values: dict[str, Any]) -> None:
    memory = Spans()
    made = sanitize_attributes(values)
    memory.tracer.start_span("s", attributes=made).end()
    (ended,) = memory.ended()
    kept = {k: list(v) if isinstance(v, tuple) else v for k, v in (ended.attributes or {}).items()}
    assert kept == made
    assert made.keys() == values.keys()


def test_a_value_and_names_below_it_is_no_structure() -> None:
    with pytest.raises(ValueError, match="has a value of its own"):
        filter_and_unflatten_attributes({"a": 1, "a.b": 2}, "a")
    assert filter_and_unflatten_attributes({"a.0.x": 1, "a.2.x": 2, "ab": 3}, "a") == {"0": {"x": 1}, "2": {"x": 2}}


def test_rewards_are_read() -> None:
    several = reward({"speed": 0.5, "task": True}, primary_key="task")
    assert [(one.name, one.value) for one in get_rewards_from_span(several)] == [("task", 1.0), ("speed", 0.5)]
    assert get_reward_value(several) == 1.0
    spans = [reward(0.25), span(emit_message("m", propagate=False)), several]
    assert find_reward_spans(spans) == [spans[0], spans[2]]
    assert find_final_reward(spans) == 1.0
    assert find_final_reward(spans[1:2]) is None
    assert not is_reward_span(spans[1])


@pytest.mark.parametrize(
    ("name", "attributes", "value"),
    [
        ("op", {"agentops.task.output": '{"type": "reward", "value": 0.5}'}, 0.5),
        ("op", {"agentops.entity.output": {"type": "reward", "value": None}}, None),
        ("op", {"agentops.entity.output": "no JSON"}, None),
        ("agentlightning.annotation", {"reward": 0.5}, 0.5),
        ("agentlightning.reward", {"reward": 0.5}, 0.5),
        ("other", {"reward": 0.5}, None),
    ],
)
def test_older_rewards_are_read(name: str, attributes: dict[str, Any], value: float | None) -> None:
    assert get_reward_value(Span.from_attributes(name=name, attributes=attributes)) == value


def test_a_malformed_reward_is_told() -> None:
    with pytest.raises(ValidationError, match="value"):
        get_reward_value(Span.from_attributes(attributes={"agentlightning.reward.0.name": "primary"}))


@given(st.text() | st.integers() | st.floats() | st.booleans() | st.binary() | st.lists(st.integers() | st.none()))
def test_objects_come_back(value: Any) -> None:
    back = get_object_value(span(emit_object(value, propagate=False)))
    assert type(back) is type(value)
    assert back == value or math.isnan(back)


def test_other_spans_hold_no_object_or_message() -> None:
    other = span(emit_exception(ValueError("x"), propagate=False))
    assert (get_object_value(other), get_message_value(other)) == (None, None)
    assert get_message_value(span(emit_message("hello", propagate=False))) == "hello"
    with pytest.raises(RuntimeError, match="'mine'"):
        get_object_value(
            Span.from_attributes(
                attributes={"agentlightning.object.literal": "1", "agentlightning.object.type": "mine"}
            )
        )


def test_links_and_tags_come_back() -> None:
    links = {"gen_ai.response.id": "c-1", "span_id": "00f067aa0ba902b7"}
    attributes = make_link_attributes(links) | make_tag_attributes(["fast", "gen_ai.model:m"])
    assert {link.key_match: link.value_match for link in extract_links_from_attributes(attributes)} == links
    assert extract_tags_from_attributes(attributes) == ["fast", "gen_ai.model:m"]
    assert (extract_links_from_attributes({}), extract_tags_from_attributes({})) == ([], [])
    with pytest.raises(ValueError, match="'span_id' must match a string"):
        make_link_attributes({"span_id": 1})  # type: ignore[dict-item]  # what callers without types do


def test_linked_spans_are_found_by_id_and_attribute() -> None:
    memory = Spans()
    for number in range(3):
        memory.tracer.start_span("call", attributes={"gen_ai.response.id": f"c-{number}"}).end()
    ended = memory.ended()
    stored = [Span.from_opentelemetry(one, "r", "a", n) for n, one in enumerate(ended)]
    for link in (("gen_ai.response.id", "c-1"), ("span_id", stored[1].span_id), ("trace_id", stored[1].trace_id)):
        model = [LinkPydanticModel(key_match=link[0], value_match=link[1])]
        assert query_linked_spans(stored, model) == [stored[1]]
        assert query_linked_spans(ended, model) == [ended[1]]
    both = [LinkPydanticModel(key_match="gen_ai.response.id", value_match="c-1")] * 2
    both[1] = LinkPydanticModel(key_match="span_id", value_match=stored[2].span_id)
    assert query_linked_spans(stored, both) == []
