"""Scores that people give to rollouts, calls and pairs: checked, and made into reward spans.

A score is a span like a reward that an agent emits, so the assembler, the view and trainers need to know nothing more.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, cast

from lightstream.schemas.attribute_names import AGL_ANNOTATION, AGL_LINK, AGL_REWARD
from lightstream.schemas.errors import StoreError
from lightstream.schemas.records import SpanRecord, SpanStatus
from lightstream.stream_processors.core.rewards import is_reward

SCOPE_NAME = "lightstream.feedback"
"""Scope of the spans of scores, by which SQL finds them."""
SCORE_ATTRIBUTES = (f"{AGL_REWARD}.0.name", f"{AGL_REWARD}.0.value")
"""Of a score's span: the name and the number."""
COMMENT = "lightstream.feedback.comment"
KEY = "lightstream.feedback.key"
BY = "lightstream.feedback.by"
"""Who scored, such as ``page``, ``command line, ada`` or ``judge gpt-5-mini``."""
COMPARED_WITH = "lightstream.feedback.compared_with"
"""Of a pair: the other rollout."""

DEFAULT_NAME = "feedback"
THUMBS: Mapping[str, float] = {"up": 1.0, "down": 0.0}
TEXT_CHARS_MAX: Mapping[str, int] = {"comment": 10_000, "name": 200, "key": 200, "by": 200}
ID_CHARS_MAX = 1000
IDS = ("rollout_id", "attempt_id", "span_id", "trace_id", "response_id", "chosen", "rejected")
FIELDS = (*IDS, "score", "name", "comment", "key", "by")
ID_BYTES = {"trace_id": 16, "span_id": 8}


@dataclass(frozen=True, slots=True)
class Feedback:
    """One score of one rollout or span.

    Attributes:
        rollout_id, span_id, trace_id, response_id: name what is scored; empty where not given. Without ``span_id`` and
            ``response_id`` that is the rollout.
        attempt_id: of a rollout, the attempt that must still be its last; empty: whichever is.
        score: the reward; finite, and within float32.
        key: the same key for the same target is the same score, however often it is sent.
        by: who scored; empty where nobody said.
        compared_with: of a pair, the other rollout; else empty.
    """

    score: float
    key: str
    rollout_id: str = ""
    attempt_id: str = ""
    span_id: str = ""
    trace_id: str = ""
    response_id: str = ""
    name: str = DEFAULT_NAME
    comment: str = ""
    by: str = ""
    compared_with: str = ""

    @property
    def is_of_span(self) -> bool:
        """Whether a span is scored, and not the whole rollout."""
        return bool(self.span_id or self.response_id)

    @property
    def shown(self) -> str:
        """The scored thing, in words."""
        names = {"span": self.span_id, "response": self.response_id, "rollout": self.rollout_id}
        return " of ".join(f"{kind} {value!r:.200}" for kind, value in names.items() if value)

    def span(self, target: Target, now_unix_nano: int) -> SpanRecord:
        """The reward span. Its ids follow from target and key."""
        seed = "\0".join((target.rollout_id, target.attempt_id, target.span_id, self.key)).encode("utf-8", "replace")
        attributes: dict[str, Any] = {
            **dict(zip(SCORE_ATTRIBUTES, (self.name, self.score), strict=True)),
            KEY: self.key,
        }
        links = {"span_id": target.span_id, "trace_id": target.trace_id} if target.span_id else {}
        for number, (key, value) in enumerate(links.items()):
            attributes |= {f"{AGL_LINK}.{number}.key_match": key, f"{AGL_LINK}.{number}.value_match": value}
        attributes |= {COMMENT: self.comment} if self.comment else {}
        attributes |= {BY: self.by} if self.by else {}
        attributes |= {COMPARED_WITH: self.compared_with} if self.compared_with else {}
        return SpanRecord(
            rollout_id=target.rollout_id,
            attempt_id=target.attempt_id,
            trace_id=target.trace_id or blake2b(seed, digest_size=16, person=b"trace").hexdigest(),
            span_id=blake2b(seed, digest_size=8, person=b"span").hexdigest(),
            parent_id=target.span_id or None,
            name=AGL_ANNOTATION,
            status=SpanStatus.OK,
            start_unix_nano=now_unix_nano,
            end_unix_nano=now_unix_nano,
            attributes=attributes,
            scope_name=SCOPE_NAME,
        )


@dataclass(frozen=True, slots=True)
class Target:
    """The subject of a score.

    Attributes:
        span_id, trace_id: empty where it is for the whole rollout.
        opened_unix_nano: when the attempt began.
        is_open: whether the attempt still runs.
    """

    rollout_id: str
    attempt_id: str
    opened_unix_nano: int
    is_open: bool
    span_id: str = ""
    trace_id: str = ""


def feedback_of(value: Any) -> Sequence[Feedback]:
    """Read one score from JSON: ``{"rollout_id", "score", "name"?, "comment"?, "key"?, "by"?}``.

    In place of ``rollout_id``, or beside it: ``span_id`` (with ``trace_id``) or ``response_id`` for one call. A pair is
    ``{"chosen": rollout, "rejected": rollout}``, without a score: 1 for the one and 0 for the other.

    Args:
        value: what JSON had. A score is a number, ``"up"`` (1) or ``"down"`` (0).

    Returns:
        One, and of a pair two. Without ``key`` each call makes another score.

    Raises:
        StoreError: names the field that is wrong.
    """
    if not isinstance(value, dict):
        raise StoreError(f"a score is an object, not {value!r:.100}.", next_step='Send {"rollout_id": …, "score": 1}.')
    given = {name: item for name, item in cast("dict[str, Any]", value).items() if item is not None}
    if unknown := sorted(given.keys() - set(FIELDS)):
        raise StoreError(f"{unknown[0]!r:.100} is no field of a score; {', '.join(FIELDS)} are.")
    texts = {name: _text(given, name) for name in FIELDS if name != "score"}
    for name, size in ID_BYTES.items():
        if texts[name] and not _is_hex(texts[name], 2 * size):
            raise StoreError(f"{name} must be {2 * size} hex digits, not {texts[name]!r:.100}.")
    texts |= {name: texts[name].lower() for name in ID_BYTES}
    texts |= {"name": texts["name"] or DEFAULT_NAME, "key": texts["key"] or uuid.uuid4().hex}
    chosen, rejected = texts.pop("chosen"), texts.pop("rejected")
    if chosen or rejected:
        return _pair(given, texts, chosen, rejected)
    if not (texts["rollout_id"] or texts["span_id"] or texts["response_id"]):
        raise StoreError("a score needs rollout_id, span_id or response_id; a pair needs chosen and rejected.")
    return (Feedback(score=_score(given), **texts),)


def _pair(given: Mapping[str, Any], texts: Mapping[str, str], chosen: str, rejected: str) -> Sequence[Feedback]:
    if not chosen or not rejected or chosen == rejected:
        raise StoreError("a pair needs two rollouts: chosen and rejected.")
    if "score" in given or any(texts.get(name) for name in IDS):
        raise StoreError("a pair has no score and no other id: the chosen rollout gets 1, the rejected one 0.")
    named = {name: texts[name] for name in ("name", "comment", "key", "by")}
    return (
        Feedback(score=1.0, rollout_id=chosen, compared_with=rejected, **named),
        Feedback(score=0.0, rollout_id=rejected, compared_with=chosen, **named),
    )


def _score(given: Mapping[str, Any]) -> float:
    score = given.get("score")
    if isinstance(score, str) and score in THUMBS:
        return THUMBS[score]
    if type(score) in (bool, int, float):
        try:
            number = float(cast("float", score))
        except OverflowError:
            number = float("inf")
        if is_reward(number):
            return number
    raise StoreError(f'score must be a finite number within float32, "up" or "down", not {score!r:.100}.')


def _text(given: Mapping[str, Any], name: str) -> str:
    value = given.get(name, "")
    limit = TEXT_CHARS_MAX.get(name, ID_CHARS_MAX)
    if not isinstance(value, str):
        raise StoreError(f"{name} must be text, not {value!r:.100}.")
    if len(value) > limit:
        raise StoreError(f"{name} has {len(value):,} characters; it may have {limit:,}.")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise StoreError(f"{name} has half of a surrogate pair, which no text may have.") from error
    return value


def _is_hex(text: str, digits: int) -> bool:
    return len(text) == digits and all(character in "0123456789abcdefABCDEF" for character in text)
