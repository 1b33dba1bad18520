"""Token ids and log-probabilities as packed little-endian bytes, with nothing but the standard library.

Packed bytes read four times faster from Avro than arrays of numbers. Trainers use ``numpy.frombuffer(b, "<i4")``.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Iterable
from functools import lru_cache

from .errors import RecordError

TOKEN_BYTES = 4
"""Size of one packed token id, and of one packed log-probability."""

FLOAT32_BEYOND = 2.0**128 - 2.0**103
"""Magnitudes from here on are rounded to infinity."""

PACKERS_KEPT = 4096
"""One per length, 100 bytes each. Three times as fast as ``array("i", …)`` and twice as fast as :func:`struct.pack`,
which parses the format again once it has seen 100 others."""

_SWAP = sys.byteorder == "big"


def pack_int32(values: Iterable[int]) -> bytes:
    """Pack integers as int32 (n,), little-endian: 4 n bytes.

    Raises:
        RecordError: a value is not an integer within int32.
    """
    items = tuple(values)
    try:
        return _packer("i", len(items))(*items)
    except struct.error as error:
        raise RecordError(f"token ids must be integers within int32: {error}") from error


@lru_cache(maxsize=PACKERS_KEPT)
def _packer(kind: str, count: int) -> Callable[..., bytes]:
    return struct.Struct(f"<{count}{kind}").pack


def is_float32(value: float) -> bool:
    """Whether a number is finite, and stays so as float32."""
    return abs(value) < FLOAT32_BEYOND  # false for NaN


def unpack_int32(data: bytes) -> array[int]:
    """Inverse of :func:`pack_int32`: ``array('i')`` of length ``len(data) / 4``.

    Raises:
        RecordError: the length is not a multiple of 4.
    """
    return _unpack("i", data)


def pack_float32(values: Iterable[float]) -> bytes:
    """Pack numbers as float32 (n,), little-endian, rounded to nearest.

    Raises:
        RecordError: a value is not a number or is beyond float32.
    """
    items = tuple(values)
    try:
        return _packer("f", len(items))(*items)
    except (struct.error, OverflowError) as error:
        raise RecordError(f"log-probabilities must be numbers within float32: {error}") from error


def unpack_float32(data: bytes) -> array[float]:
    """Inverse of :func:`pack_float32`: ``array('f')`` of length ``len(data) / 4``.

    Raises:
        RecordError: the length is not a multiple of 4.
    """
    return _unpack("f", data)


def _unpack(typecode: str, data: bytes) -> array:  # type: ignore[type-arg]  # element type follows from typecode
    if len(data) % 4:
        raise RecordError(f"packed 4-byte numbers need a multiple of 4 bytes, got {len(data)}")
    values: array = array(typecode)  # type: ignore[type-arg]  # element type follows from typecode
    values.frombytes(data)
    if _SWAP:
        values.byteswap()
    return values
