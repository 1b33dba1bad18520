"""Trainability: whether a call's tokens can be trained on. Each way in which they cannot has a reason code."""

from __future__ import annotations

import math

from lightstream.schemas.packing import unpack_float32
from lightstream.schemas.records import DropReason

from ..dialects import ReadCall

LOGPROB_MAX = 1e-3
"""A log-probability is at most 0; servers that sum in 16 bits overshoot by less than this."""

Fault = tuple[DropReason, str]
"""Reason for which a call cannot be trained on, and the detail."""

_BYTES_PER_ITEM = 4
_NEGATIVE_FINITE = bytes(range(0x80, 0xFF))
"""Highest bytes of float32 numbers that are below 0 and above -1.7e38: sign bit set, exponent not all ones."""


def find_fault(read: ReadCall) -> Fault | None:
    """The first fault of a call; ``None`` where it can be trained on."""
    if read.problem == DropReason.TOO_LARGE:
        return read.problem, read.detail
    if read.failure is not None:
        return DropReason.CALL_FAILED, read.failure
    if read.problem is not None:
        return read.problem, read.detail
    prompt, response = read.prompt_token_ids, read.response_token_ids
    if prompt is None or response is None:
        missing = "prompt" if response is not None else "response" if prompt is not None else "prompt and response"
        return DropReason.NO_TOKEN_IDS, f"no {missing} token ids were captured"
    for name, ids in (("prompt", prompt), ("response", response)):
        if len(ids) % _BYTES_PER_ITEM:
            return DropReason.BAD_TOKEN_IDS, f"{len(ids)} bytes of {name} token ids are not a multiple of 4"
        if not ids[3::_BYTES_PER_ITEM].isascii():  # the sign bit of each little-endian int32
            return DropReason.BAD_TOKEN_IDS, f"a {name} token id is negative"
    if not prompt:
        return DropReason.NO_TOKEN_IDS, "the prompt has no tokens"
    if not response:
        return DropReason.EMPTY_RESPONSE, "the response has no tokens"
    return _find_fault_of_logprobs(read.response_logprobs, len(response))


def _find_fault_of_logprobs(packed: bytes | None, response_bytes: int) -> Fault | None:
    if packed is None:
        return None
    if len(packed) != response_bytes:
        count, expected = len(packed) / _BYTES_PER_ITEM, response_bytes // _BYTES_PER_ITEM
        return DropReason.LOGPROBS_LENGTH_MISMATCH, f"{count:g} log-probabilities for {expected} response tokens"
    if not packed[3::_BYTES_PER_ITEM].translate(None, _NEGATIVE_FINITE):
        return None
    values = unpack_float32(packed)
    if not math.isfinite(sum(values)):  # any NaN or infinity makes the sum one
        return DropReason.BAD_LOGPROBS, "a log-probability is not finite"
    highest = max(values)
    if highest > LOGPROB_MAX:
        return DropReason.BAD_LOGPROBS, f"a log-probability is {highest:g}, above 0"
    return None
