"""Rules of assembly that a run may have of its own."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import pytest
from pydantic import ValidationError

from lightstream.schemas.assembly_rules import CREDIT_RULES, REWARD_MATCHES
from lightstream.schemas.codec.avro_schema import schema_of
from lightstream.schemas.codec.convert import from_avro
from lightstream.schemas.records import AssemblySpec, RolloutSpec
from lightstream.schemas.types import Assembly, EnqueueRolloutRequest


@pytest.mark.parametrize("credit", [*CREDIT_RULES, "discounted:0.9", "my.module:rule", "rules.py:rule", None])
@pytest.mark.parametrize("match", [*REWARD_MATCHES, None])
def test_known_rules_are_taken(credit: str | None, match: Any) -> None:
    assert Assembly(credit=credit, reward_match=match).model_dump(exclude_none=True) == {
        name: value for name, value in (("credit", credit), ("reward_match", match)) if value is not None
    }


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({"credit": "identicle"}, "use identical, identical_plus_own, last_call_only, discounted:<0..1>, module:func"),
        ({"credit": "discounted:2"}, "there is no such rule"),
        ({"reward_match": "clock"}, "trajectory', 'log_order', 'first_occurrence' or 'first_sibling'"),
        ({"trained_agents": "("}, "not a regular expression"),
        ({"trained_agents": "a{99999999999999999999}"}, "not a regular expression"),
        ({"credits": "identical"}, "credits"),
    ],
)
def test_unknown_rules_are_refused_with_those_there_are(rules: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Assembly(**rules)
    assert said in str(caught.value)
    with pytest.raises(ValidationError):
        EnqueueRolloutRequest.model_validate({"input": 1, "assembly": rules})
    with pytest.raises(ValidationError):
        AssemblySpec(**rules)


def test_a_record_of_before_has_no_rules() -> None:
    """Written by a schema without the field, read by today's."""
    schema = schema_of(RolloutSpec)
    older = schema | {"fields": [field for field in schema["fields"] if field["name"] != "assembly"]}
    values = RolloutSpec(rollout_id="r").model_dump(mode="json", exclude={"assembly"})
    written = io.BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(older), values)
    written.seek(0)
    read: Any = fastavro.schemaless_reader(written, fastavro.parse_schema(older), fastavro.parse_schema(schema))
    assert from_avro(RolloutSpec, read) == RolloutSpec(rollout_id="r")
