"""The call that a dialect reads from a span, and the values that spans carry: lists, packed bytes, JSON text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard, cast

from lightstream.schemas.errors import RecordError
from lightstream.schemas.packing import pack_float32, pack_int32
from lightstream.schemas.records import DropReason, PolicyVersionRun
from lightstream.schemas.valid_text import valid_text


@dataclass(slots=True)
class ReadCall:
    """One LLM call (one choice of it) as one span describes it.

    ``prompt_token_ids`` and ``response_token_ids`` are int32, ``response_logprobs`` float32, packed little-endian;
    ``None`` where the span does not say. They are as found: the assembler checks that they fit together.

    Attributes:
        dialect: name of the reader.
        problem: a value was there but unusable (say, text among the token ids); ``detail`` says which and how.
        is_request: it is the request that a library made for the call of the LLM span around it, if there is one: the
            two are one call, though the library may give it an id of its own.
        resend_count: how many times the client made the request before, and had no answer.
        policy_version_runs: which version sampled which tokens, where there were several.
        images: files of the images in the prompt, in their order.
        resources_id: version of the resources whose weights answered.
        sampling_json: parameters of the request that decide how tokens are drawn.
        sources: field -> where in the span it was found: an attribute's name, or a path in its JSON.
    """

    dialect: str
    response_id: str | None = None
    choice_index: int = 0
    model: str = ""
    policy_version: int | None = None
    prompt_token_ids: bytes | None = None
    response_token_ids: bytes | None = None
    response_logprobs: bytes | None = None
    finish_reason: str | None = None
    failure: str | None = None
    problem: DropReason | None = None
    detail: str = ""
    is_request: bool = False
    resend_count: int = 0
    sources: dict[str, str] | None = None
    policy_version_runs: tuple[PolicyVersionRun, ...] = ()
    images: tuple[bytes, ...] = ()
    resources_id: str | None = None
    sampling_json: str | None = None

    def note_source(self, field: str, source: str) -> None:
        """Record where in the span ``field`` was found."""
        if self.sources is None:
            self.sources = {}
        self.sources[field] = source

    def source_of(self, field: str) -> str:
        """The attribute or path where ``field`` was found; the dialect's name where none was noted."""
        return (self.sources or {}).get(field, self.dialect)

    @property
    def has_tokens(self) -> bool:
        return self.prompt_token_ids is not None and self.response_token_ids is not None

    @property
    def names_a_call(self) -> bool:
        """It has a response id or tokens (good or bad); a span without may belong to no call at all."""
        return self.response_id is not None or self.response_token_ids is not None or self.problem is not None


JSON_CHARS_MAX = 64 * 1024 * 1024
"""Longest text parsed as JSON: twice the largest Kafka record, so never reached by a record that arrived."""

_SURROGATES = ("\\ud", "\\uD")
"""The beginning of a surrogate that is escaped in JSON; some Hangul begin so too."""


def is_map(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Whether ``value`` is a mapping (its keys are text, as JSON and OTLP have it)."""
    return isinstance(value, Mapping)


def is_list(value: object) -> TypeGuard[list[Any] | tuple[Any, ...]]:
    """Whether ``value`` is a list or tuple."""
    return isinstance(value, (list, tuple))


def parse_json(value: object) -> Any:
    """Structured values as they are, text parsed as JSON; ``None`` for anything that is neither.

    What was parsed goes into records, so lone surrogates in it are replaced.
    """
    if is_map(value) or is_list(value):
        return value
    if not isinstance(value, str) or not value or len(value) > JSON_CHARS_MAX:
        return None
    try:
        parsed = json.loads(value)
        return valid_text(parsed) if any(begin in value for begin in _SURROGATES) else parsed
    except (ValueError, RecursionError):
        return None


def text_or_none(value: object) -> str | None:
    """Text that says something, else ``None``."""
    return value if isinstance(value, str) and value else None


def set_token_ids(call: ReadCall, field: str, value: object, source: str) -> bool:
    """Take ``value`` as token ids int32 (n,) into ``field`` of ``call``; false when it is absent (``None``).

    A value that is there but not a list of int32 becomes the call's problem ``bad_token_ids``; the field stays unset.
    """
    if value is None:
        return False
    if isinstance(value, str):
        value = parse_json(value)
    if isinstance(value, bytes):
        packed: bytes | None = value
    elif is_list(value) and all(type(item) is int for item in value):
        try:
            packed = pack_int32(value)
        except RecordError:
            packed = None
    else:
        packed = None
    if packed is None:
        _problem(call, DropReason.BAD_TOKEN_IDS, f"{source} is not a list of integers within int32")
        return True
    setattr(call, field, packed)
    call.note_source(field, source)
    return True


def set_logprobs(call: ReadCall, value: object, source: str) -> bool:
    """Take ``value`` as log-probabilities float32 (n,) of the response tokens; false when absent (``None``).

    Accepted: packed bytes, a list of numbers, a list of ``{"logprob": number}`` (OpenAI's ``content``), ``{"content":
    list}``, or any of these as JSON text. Anything else, such as text that was cut, becomes the call's problem
    ``bad_logprobs``.
    """
    value = _parsed(value)
    if is_map(value):
        value = _parsed(value.get("content", value.get("token_logprobs")))
    if value is None:
        return False
    packed: bytes | None = None
    if isinstance(value, bytes):
        packed = value
    elif is_list(value):
        items = [item.get("logprob") if is_map(item) else item for item in value]
        if all(type(item) in _NUMBERS for item in items):
            try:
                packed = pack_float32(cast("list[float]", items))
            except RecordError:
                packed = None
    if packed is None:
        _problem(call, DropReason.BAD_LOGPROBS, f"{source} is not a list of numbers within float32")
        return True
    call.response_logprobs = packed
    call.note_source("response_logprobs", source)
    return True


_NUMBERS = frozenset({int, float})


def _parsed(value: object) -> object:
    """The value of JSON text, ``None`` for null and empty text; text that is not JSON as it is."""
    if not isinstance(value, str):
        return value
    if value.strip() in _NOTHING:
        return None
    parsed = parse_json(value)
    return value if parsed is None else parsed


_NOTHING = frozenset({"", "null"})


def _problem(call: ReadCall, reason: DropReason, detail: str) -> None:
    if call.problem is None:
        call.problem, call.detail = reason, detail
