"""Packed numbers come back as they were."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightstream.schemas.errors import RecordError
from lightstream.schemas.packing import pack_float32, pack_int32, unpack_float32, unpack_int32


@given(st.lists(st.integers(-(2**31), 2**31 - 1)))
def test_int32_round_trip_is_little_endian(numbers: list[int]) -> None:
    packed = pack_int32(numbers)
    assert packed == struct.pack(f"<{len(numbers)}i", *numbers)
    assert unpack_int32(packed).tolist() == numbers


@given(st.lists(st.floats(width=32, allow_nan=False)))
def test_float32_round_trip_is_little_endian(numbers: list[float]) -> None:
    packed = pack_float32(numbers)
    assert packed == struct.pack(f"<{len(numbers)}f", *numbers)
    assert unpack_float32(packed).tolist() == numbers


@pytest.mark.parametrize("bad", [[2**31], [-(2**31) - 1], [1.5], ["1"], [None]])
def test_what_is_not_an_int32_is_refused(bad: list[int]) -> None:
    with pytest.raises(RecordError, match="int32"):
        pack_int32(bad)


@pytest.mark.parametrize("bad", [["x"], [None]])
def test_what_is_not_a_number_is_refused(bad: list[float]) -> None:
    with pytest.raises(RecordError, match="float32"):
        pack_float32(bad)


@pytest.mark.parametrize("unpack", [unpack_int32, unpack_float32])
def test_a_length_that_is_no_multiple_of_four_is_refused(unpack: object) -> None:
    with pytest.raises(RecordError, match="5"):
        unpack(b"12345")  # type: ignore[operator]  # a parametrised function
