"""What callers hand over comes back as it was, however it is read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightstream.schemas.errors import StoreError
from lightstream.store_views.stores.json_text import JSON_DEPTH_MAX, from_json, to_json

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=20
)


@given(VALUES)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    assert repr(from_json(to_json("input", value))) == repr(value)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 500 + "]" * 500,
        '"\\ud800"',
        '"\\ud83d\\ude00"',
        '{"a": 1, "a": 2}',
        "1e400",
        "-0",
        "-0.0",
        "5e-324",
        "2.2250738585072011e-308",
        "123456789012345678901234567890",
        "[NaN, Infinity, -Infinity]",
        " [1] ",
    ],
)
def test_what_others_wrote_says_what_pythons_own_reader_says(text: str) -> None:
    assert repr(from_json(text)) == repr(json.loads(text))


@pytest.mark.parametrize("text", ["", "{", "[1,]", '"\x01"', "01", "nul", "1 2"])
def test_what_is_no_json_is_an_error(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # json's own, whatever it says
        from_json(text)


@pytest.mark.parametrize("value", [{"a": object()}, "\ud800", {("a", "b"): 1}])
def test_what_json_cannot_say_is_named(value: Any) -> None:
    with pytest.raises(StoreError, match="input cannot be kept as JSON"):
        to_json("input", value)


def nested(depth: int) -> Any:
    value: Any = '[["\\'
    for number in range(depth):
        value = [value] if number % 2 else {"{[": value}
    return value


@pytest.mark.parametrize("depth", [0, 1, JSON_DEPTH_MAX])
def test_a_value_may_be_nested(depth: int) -> None:
    assert from_json(to_json("input", nested(depth))) == nested(depth)
    assert from_json(to_json("input", [nested(3)] * 100)) == [nested(3)] * 100, "many are not deep"


@pytest.mark.parametrize("depth", [JSON_DEPTH_MAX + 1, 300, 100_000])
def test_a_value_that_is_nested_too_deeply_is_named_with_the_limit(depth: int) -> None:
    with pytest.raises(StoreError, match=f"input .* more than {JSON_DEPTH_MAX} deep"):
        to_json("input", nested(depth))
