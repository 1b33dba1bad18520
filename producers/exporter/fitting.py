"""Records shortened until they fit: the largest values go first."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from lightstream.producers import semconv
from lightstream.schemas.errors import RecordError, RecordTooLargeError
from lightstream.schemas.records import LlmCall, SpanRecord
from lightstream.schemas.valid_text import valid_text

KEPT_CHARACTERS = 1024
"""Characters of a text that stay: enough to recognise it."""

NOTES_MAX = 100
"""Cuts named one by one; further ones are counted."""

FIELD_CHARACTERS_MAX = 64 * 1024
"""Longest name, status message or scope once a span is over the limit; none that is meant comes near it."""

_ITEM_BYTES = 10
"""Upper bound of an encoded number; also what a value costs in addition to its content."""

_TEXT_FIELDS = ("name", "status_message", "scope_name", "scope_version", "trace_state")
_CALL_FIELDS = (
    "request_json",
    "response_json",
    "prompt_token_ids",
    "response_token_ids",
    "response_logprobs",
    "response_tokens_text",
    "response_token_ends",
)


@dataclass(frozen=True, slots=True)
class _Cut:
    size_bytes: int
    where: str
    apply: Callable[[], None]


def shortened(record: SpanRecord, excess_bytes: int) -> SpanRecord:
    """A copy of ``record`` that is at least ``excess_bytes`` smaller, as far as its content allows.

    The biggest values go first: of a text the first characters stay, anything else becomes ``None``. What was cut is
    listed in the attribute ``lightstream.truncated``. ``record`` is unchanged.
    """
    fields = dict(record.__dict__)
    notes: list[str] = []
    saved = 0
    for name in _TEXT_FIELDS:
        text: str = fields[name]
        if len(text) > FIELD_CHARACTERS_MAX:
            fields[name] = text[:FIELD_CHARACTERS_MAX]
            saved += len(text.encode()) - len(fields[name].encode())
            notes.append(f"{name} ({len(text.encode()):,} bytes)")
    call: dict[str, Any] | None = None if record.llm_call is None else dict(record.llm_call.__dict__)
    cuts = _cuts(fields, call)
    cuts.sort(key=lambda cut: cut.size_bytes, reverse=True)
    target_bytes = excess_bytes + NOTES_MAX * 256
    for cut in cuts:
        if saved >= target_bytes:
            break
        cut.apply()
        saved += cut.size_bytes - min(cut.size_bytes, KEPT_CHARACTERS * 4)
        notes.append(f"{cut.where} ({cut.size_bytes:,} bytes)")
    if len(notes) > NOTES_MAX:
        notes = [*notes[:NOTES_MAX], f"and {len(notes) - NOTES_MAX} more"]
    fields["attributes"][semconv.TRUNCATED] = notes
    if call is not None:
        fields["llm_call"] = LlmCall(**call)
    return SpanRecord(**fields)


def _cuts(fields: dict[str, Any], call: dict[str, Any] | None) -> list[_Cut]:
    """Every value that may be cut; ``fields`` gets copies of the mappings that a cut changes."""
    fields["attributes"] = dict(fields["attributes"])
    fields["resource_attributes"] = dict(fields["resource_attributes"])
    cuts = _of_mapping(fields["attributes"], "attributes")
    cuts += _of_mapping(fields["resource_attributes"], "resource_attributes")
    for kind in ("events", "links"):
        items = [item.model_copy(update={"attributes": dict(item.attributes)}) for item in fields[kind]]
        fields[kind] = items
        for index, item in enumerate(items):
            cuts += _of_mapping(item.attributes, f"{kind}.{index}")
    if call is not None:
        held = call
        cuts += [_cut(held, name, "llm_call") for name in _CALL_FIELDS if held[name] is not None]
    return cuts


def _of_mapping(values: dict[str, Any], where: str) -> list[_Cut]:
    return [_cut(values, name, where) for name in values]


def _cut(holder: dict[str, Any], name: str, where: str) -> _Cut:
    value = holder[name]

    def apply() -> None:
        if isinstance(value, str) and len(name) < KEPT_CHARACTERS:
            holder[name] = value[:KEPT_CHARACTERS]
        elif len(name) < KEPT_CHARACTERS:
            holder[name] = None
        else:
            del holder[name]

    return _Cut(_size_bytes(value) + len(name.encode()), f"{where}.{name[:200]}", apply)


def _size_bytes(value: Any) -> int:
    """About how many bytes ``value`` takes in a record."""
    if isinstance(value, str):
        return len(value.encode("utf-8", "replace"))
    if isinstance(value, (bytes, bytearray)):
        return len(value)
    if isinstance(value, Mapping):
        mapping = cast("Mapping[str, Any]", value)
        return sum(len(key) + _size_bytes(item) for key, item in mapping.items())
    if isinstance(value, (list, array)):
        return sum(map(_size_bytes, cast("list[Any]", value)))
    return _ITEM_BYTES


T = TypeVar("T")

CUTS_MAX = 4
"""The saving of a cut is an estimate, which may be short, so more than one is allowed."""


def taken_as_fits(record: SpanRecord, take: Callable[[SpanRecord], T]) -> tuple[T, bool]:
    """Call ``take`` with the span; returns its result, and whether it lost values to fit. ``record`` is unchanged.

    Args:
        take: encodes or sends a span. Raises :class:`RecordError` for one that cannot be encoded and
            :class:`RecordTooLargeError` for one over the limit, and has done nothing then.

    Raises:
        RecordError: it cannot be encoded with valid text either.
        RecordTooLargeError: it does not fit however much is cut.
    """
    try:
        try:
            return take(record), False
        except RecordError:
            record = valid_text(record)
            return take(record), False
    except RecordTooLargeError as error:
        too_large = error
    excess_bytes = 0
    for _ in range(CUTS_MAX):
        excess_bytes += too_large.size_bytes - too_large.limit_bytes
        try:
            return take(shortened(record, excess_bytes)), True
        except RecordTooLargeError as error:
            too_large = error
    raise too_large
