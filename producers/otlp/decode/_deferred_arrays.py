"""Attributes whose values are long arrays of numbers, deferred until all of a request are decoded together. Pure.

An OTLP array is a message whose field 1 repeats an ``AnyValue``: tag, length, and in it the number's own tag and value
(https://protobuf.dev/programming-guides/encoding/). What is not exactly that gives ``None``, and is decoded one by one.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lightstream.producers import semconv
from lightstream.schemas.errors import DecodeError

Bytes: TypeAlias = "NDArray[np.uint8]"

ITEM_TAG = 0x0A
INTEGER_TAG = 0x18
DOUBLE_TAG = 0x21
DOUBLE_ITEM_BYTES = 11
"""Tag, length (9), the double's tag, the double."""

LAST_BYTES_PER_ITEM = 4
"""Of an integer element four bytes are below 0x80: tag, length, the integer's tag, and the last byte of its varint."""

VARINT_BYTES_MAX = 10


def integers_in(arrays: Sequence[bytes]) -> list[NDArray[np.int64]] | None:
    """The integers of encoded arrays, each (n,), int64, or ``None`` if one of them holds anything else.

    Some twenty calls of numpy serve all arrays of a request: made for each of them they would cost more than the rest.
    """
    wire = np.frombuffer(b"".join(arrays), np.uint8)
    low = np.flatnonzero(wire < 0x80)
    if len(low) % LAST_BYTES_PER_ITEM or not len(low) or low[-1] != len(wire) - 1:
        return None
    tag, length, kind, last = low.reshape(-1, LAST_BYTES_PER_ITEM).T
    size = last - kind
    regular = (
        tag[0] == 0
        and bool((tag[1:] == last[:-1] + 1).all())
        and bool((kind == tag + 2).all())
        and bool((wire[tag] == ITEM_TAG).all())
        and bool((wire[kind] == INTEGER_TAG).all())
        and bool((wire[length] == size + 1).all())
    )
    longest = int(size.max())
    if not regular or longest > VARINT_BYTES_MAX:
        return None
    begins = np.cumsum([0, *map(len, arrays)])[:-1]
    firsts = np.searchsorted(tag, begins)
    if not (tag[firsts] == begins).all():
        return None
    return np.split(_varints(wire, kind + 1, size, longest), firsts[1:])


def doubles_in(arrays: Sequence[bytes]) -> list[NDArray[np.float64]] | None:
    """The numbers of encoded arrays, each (n,), float64, or ``None`` if one of them holds anything but doubles."""
    if not arrays or any(len(data) % DOUBLE_ITEM_BYTES for data in arrays):
        return None
    items = np.frombuffer(b"".join(arrays), np.uint8).reshape(-1, DOUBLE_ITEM_BYTES)
    if not (items[:, :3] == (ITEM_TAG, DOUBLE_ITEM_BYTES - 2, DOUBLE_TAG)).all():
        return None
    numbers: Any = np.ascontiguousarray(items[:, 3:]).view("<f8").reshape(-1)
    ends = np.cumsum([len(data) // DOUBLE_ITEM_BYTES for data in arrays])
    return np.split(numbers, ends[:-1])


def _varints(wire: Bytes, first: NDArray[np.intp], size: NDArray[np.intp], longest: int) -> NDArray[np.int64]:
    """Varints of these first bytes and sizes; the highest has ``longest`` bytes, seven bits each, the lowest first."""
    values = (wire[first] & 0x7F).astype(np.uint64)
    for place in range(1, longest):
        has = size > place
        bits = (wire[first[has] + place] & 0x7F).astype(np.uint64)
        values[has] |= bits << np.uint64(7 * place)
    return values.view(np.int64)


VECTORISED_FROM_BYTES = 64
"""Below about 16 numbers, decoding one by one is as fast."""

TOGETHER_BYTES_MAX = 8 * 1024 * 1024
"""Of arrays decoded at once: numpy's intermediate results take about ten times that."""

KIND_AT = 2
"""Position of the first number's tag."""

INT32 = np.iinfo(np.int32)


class MalformedArrayError(DecodeError):
    """One of the deferred arrays."""


@dataclass(frozen=True, slots=True)
class _Slot:
    holder: dict[str, Any]
    name: str
    data: bytes


class DeferredArrays:
    """The number arrays of one request.

    Args:
        decode_one: decodes an array of any kind; for those that turn out to be irregular.
    """

    def __init__(self, decode_one: Callable[[bytes], list[Any]]) -> None:
        self._decode_one = decode_one
        self._integers: list[_Slot] = []
        self._doubles: list[_Slot] = []

    def defer(self, holder: dict[str, Any], name: str, data: bytes) -> bool:
        """Take ``holder[name]`` as a place to fill in, if ``data`` begins like a long array of numbers."""
        if len(data) < VECTORISED_FROM_BYTES:
            return False
        if data[KIND_AT] == INTEGER_TAG:
            self._integers.append(_Slot(holder, name, data))
        elif data[KIND_AT] == DOUBLE_TAG:
            self._doubles.append(_Slot(holder, name, data))
        else:
            return False
        holder[name] = None  # keeps its place in the order
        return True

    def fill(self) -> None:
        """Decode all deferred arrays.

        Token ids and log-probabilities under our names become packed bytes (little-endian int32 and float32) if they
        fit, everything else a list or an array.

        Raises:
            MalformedArrayError: an array is malformed.
        """
        for slots in _parts(self._integers):
            self._fill_slots(slots, integers_in)
        for slots in _parts(self._doubles):
            self._fill_slots(slots, doubles_in)
        self._integers, self._doubles = [], []

    def _fill_slots(
        self, slots: Sequence[_Slot], decode: Callable[[Sequence[bytes]], Sequence[NDArray[Any]] | None]
    ) -> None:
        arrays = decode([slot.data for slot in slots])
        if arrays is not None:
            for slot, numbers in zip(slots, arrays, strict=True):
                pack = _PACKERS.get(slot.name)
                packed = None if pack is None else pack(numbers)
                slot.holder[slot.name] = _list(numbers) if packed is None else packed
        elif len(slots) == 1:
            try:
                slots[0].holder[slots[0].name] = self._decode_one(slots[0].data)
            except DecodeError as error:
                raise MalformedArrayError(error.message) from error
        else:
            for slot in slots:
                self._fill_slots((slot,), decode)


def _parts(slots: list[_Slot]) -> list[list[_Slot]]:
    """In parts of bounded size."""
    parts: list[list[_Slot]] = []
    size_bytes = TOGETHER_BYTES_MAX
    for slot in slots:
        size_bytes += len(slot.data)
        if size_bytes > TOGETHER_BYTES_MAX:
            parts.append([])
            size_bytes = len(slot.data)
        parts[-1].append(slot)
    return parts


def _list(numbers: NDArray[Any]) -> list[int] | array[Any]:
    if numbers.dtype == np.float64:
        return array("d", numbers.tobytes())
    if numbers.min() < INT32.min or numbers.max() > INT32.max:
        integers: list[int] = numbers.tolist()
        return integers
    return array("i", numbers.astype(np.int32).tobytes())


def _int32(numbers: NDArray[Any]) -> bytes | None:
    if numbers.dtype != np.int64 or numbers.min() < INT32.min or numbers.max() > INT32.max:
        return None
    return numbers.astype("<i4").tobytes()


def _float32(numbers: NDArray[Any]) -> bytes | None:
    with np.errstate(over="ignore"):
        narrow = numbers.astype("<f4")
    return narrow.tobytes() if bool((np.isfinite(narrow) == np.isfinite(numbers)).all()) else None


_PACKERS: dict[str, Callable[[NDArray[Any]], bytes | None]] = {
    semconv.PROMPT_TOKEN_IDS: _int32,
    semconv.RESPONSE_TOKEN_IDS: _int32,
    semconv.RESPONSE_LOGPROBS: _float32,
}
