"""The types that agents and algorithms handle."""

from __future__ import annotations

from typing import get_args

import pytest
from pydantic import ValidationError

from lightstream.schemas import records, types
from lightstream.schemas.types import (
    LLM,
    Attempt,
    AttemptedRollout,
    PaginatedResult,
    ProxyLLM,
    Rollout,
    RolloutConfig,
    Span,
)


def attempt(rollout_id: str = "r") -> Attempt:
    return Attempt(rollout_id=rollout_id, attempt_id="a", sequence_id=1, start_time=1.0)


def test_a_page_is_a_sequence() -> None:
    page = PaginatedResult[int](items=[5, 6, 7], limit=3, offset=2, total=9)
    assert (list(page), len(page), page[1], page[1:], 6 in page) == ([5, 6, 7], 3, 6, [6, 7], True)
    assert repr(page) == "<PaginatedResult (2:5 of 9) [5, ...]>"
    assert not PaginatedResult[int](items=[], limit=-1, offset=0, total=0)


def test_an_attempted_rollout_has_an_attempt_of_its_own() -> None:
    rollout = Rollout(rollout_id="r", input=1, start_time=1.0)
    assert AttemptedRollout(**rollout.model_dump(), attempt=attempt()).attempt.attempt_id == "a"
    with pytest.raises(ValidationError, match="rollout r has an attempt of rollout other"):
        AttemptedRollout(**rollout.model_dump(), attempt=attempt("other"))


def test_what_goes_beyond_shows_only_where_it_is_set() -> None:
    bare = Rollout(rollout_id="r", input=1, start_time=1.0)
    assert not {"run_id", "group_id", "group_size"} & bare.model_dump().keys()
    grouped = bare.model_copy(update={"group_id": "g"})
    assert grouped.model_dump()["group_id"] == "g"
    assert Rollout.model_validate_json(grouped.model_dump_json()) == grouped


@pytest.mark.parametrize("wrong", [{"max_attempts": 0}, {"timeout_seconds": -1}, {"retry_condition": ["cancelled"]}])
def test_a_config_that_cannot_be(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        RolloutConfig.model_validate(wrong)


def test_a_proxied_model_bound_to_an_attempt() -> None:
    model = ProxyLLM(endpoint="http://p:1/v1/", model="m", sampling_parameters={"n": 1})
    rollout = AttemptedRollout(rollout_id="r", input=1, start_time=1.0, attempt=attempt())
    bound = model.with_attempted_rollout(rollout)
    assert bound == LLM(endpoint="http://p:1/rollout/r/attempt/a/v1", model="m", sampling_parameters={"n": 1})
    with pytest.raises(ValueError, match="give both"):
        model.get_base_url("r", None)


def test_a_proxied_model_whose_endpoint_names_no_version() -> None:
    assert ProxyLLM(endpoint="http://p:1/", model="m").get_base_url("r", "a") == "http://p:1/rollout/r/attempt/a"


def test_a_config_dumps_what_agent_lightnings_does() -> None:
    names = {"timeout_seconds", "unresponsive_seconds", "max_attempts", "retry_condition"}
    assert RolloutConfig().model_dump().keys() == names
    assert RolloutConfig(priority=-1).model_dump().keys() == names | {"priority"}


def test_a_span_made_by_hand() -> None:
    span = Span.from_attributes(attributes={"k": 1}, rollout_id="r", parent_id="ab" * 8)
    assert (span.name, span.status.status_code, span.sequence_id) == ("agentlightning.virtual", "OK", 0)
    assert (len(span.trace_id), len(span.span_id)) == (32, 16)
    assert span.context is not None
    assert span.parent is not None
    assert (span.context.span_id, span.parent.span_id) == (span.span_id, "ab" * 8)
    assert Span.model_validate_json(span.model_dump_json()) == span


@pytest.mark.parametrize(
    ("words", "enum"),
    [
        (types.RolloutStatus, records.RolloutStatus),
        (types.AttemptStatus, records.AttemptStatus),
        (types.RolloutMode, records.RolloutMode),
    ],
)
def test_the_words_of_a_status_are_those_of_its_record(words: object, enum: type[records.RecordEnum]) -> None:
    assert set(get_args(words)) == {member.value for member in enum} - {"unknown"}
