"""``POST /v1/feedback``: people's scores, found in the view and written to the log before the answer.

Each wants the view at the log's present end first. So an id that is unknown is so, and a score that was sent before is
found by the ids of its span. What this process has just written is remembered until the view shows it.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

from duckdb import DuckDBPyConnection
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from lightstream.runtime.clock import NANOS_PER_SECOND, Clock, SystemClock
from lightstream.runtime.http.server import read_body
from lightstream.runtime.kafka import KafkaPublisher, Position
from lightstream.runtime.redaction import Redaction
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import LightstreamError, NotFoundError, PublishError, StoreError
from lightstream.schemas.records import SpanRecord
from lightstream.schemas.topics import SPANS

from ..feedback import SCORE_ATTRIBUTES, Feedback, Target, feedback_of
from ..materialiser import ViewSource
from .admission import REQUEST_BYTES_MAX, SqlRequest, lane_named, wait_for_view
from .answering import Answering
from .statement import QueryLimits

SCORES_MAX = 1000
"""In one request."""
REMEMBERED_MAX = 10_000
WAIT_S = 30.0


@dataclass(frozen=True, slots=True)
class _Found:
    """What the view has of a score: its target, and its span where that was written before."""

    target: Target
    span: SpanRecord | None


@dataclass(frozen=True, slots=True)
class _Written:
    """A score's span; it is durable once ``durable`` is done, or the view has it, where that is ``None``."""

    span: SpanRecord
    durable: Future[Position] | None
    repeated: bool = False

    @property
    def failed(self) -> bool:
        return self.durable is not None and self.durable.done() and self.durable.exception() is not None


class FeedbackWriter:
    """Takes scores. Belongs to one event loop.

    Args:
        materialiser: the view in which targets and earlier scores are found.
        limits: of the statements that find them.
    """

    def __init__(
        self,
        settings: Settings,
        materialiser: ViewSource,
        answering: Answering,
        limits: QueryLimits,
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings
        self._materialiser = materialiser
        self._answering = answering
        self._limits = limits
        self._clock = clock or SystemClock()
        self._redact = Redaction(settings)
        self._publisher: KafkaPublisher | None = None
        self._written: OrderedDict[tuple[str, str], _Written] = OrderedDict()

    async def answer(self, request: Request) -> Response:
        """Answer one score, or a list of up to :data:`SCORES_MAX`, with a result for each.

        Of a list each stands for itself: what is wrong with one keeps no other out.

        Raises:
            StoreError, NotFoundError: the body cannot be read; or the only score is wrong, or for nothing there is.
            ServiceUnavailableError: the view has not caught up, or Kafka does not answer.
            PublishError: the only score is not known to be durable. Sent again with its key it counts once.
            BodyTooLargeError, ClientGoneError: as :func:`read_body`.
        """
        values, is_list = _values_in(await read_body(request, REQUEST_BYTES_MAX))
        scores: list[tuple[int, Feedback]] = []
        failures: dict[int, LightstreamError] = {}
        for index, value in enumerate(values):
            try:
                scores += [(index, feedback) for feedback in feedback_of(value)]
            except StoreError as error:
                failures[index] = error
        found = await self._find(request, [feedback for _, feedback in scores]) if scores else []
        for (index, _), one in zip(scores, found, strict=True):
            if isinstance(one, StoreError):
                failures.setdefault(index, one)  # and of a pair neither is written
        written: list[tuple[int, Feedback, Target, _Written]] = []
        for (index, feedback), one in zip(scores, found, strict=True):
            if isinstance(one, _Found) and index not in failures:
                try:
                    written.append((index, feedback, one.target, self._write(feedback, one)))
                except LightstreamError as error:
                    failures[index] = error
        results: list[list[dict[str, Any]]] = [[] for _ in values]
        for index, feedback, target, score in written:
            try:
                await self._until_durable(score)
            except PublishError as error:
                failures.setdefault(index, error)
            results[index].append(self._result(feedback, target, score))
        if not is_list:
            if failures:
                raise failures[0]
            return JSONResponse(_listed(None, results[0]))
        return JSONResponse({"results": [_listed(failures.get(index), result) for index, result in enumerate(results)]})

    def close(self) -> None:
        """Give up records that are not yet durable, after the publisher's patience. Blocks."""
        if self._publisher is not None:
            self._publisher.close()

    async def _find(self, request: Request, scores: Sequence[Feedback]) -> list[_Found | StoreError]:
        lane_name = lane_named(request.headers, "dashboard")
        sql_request = SqlRequest("", None, "now", WAIT_S, self._limits)
        await wait_for_view(request, self._materialiser, sql_request, self._answering.lanes[lane_name])
        return await self._answering.found(
            "POST /v1/feedback", lambda cursor: find(cursor, scores), self._limits.timeout_s, lane_name=lane_name
        )

    def _write(self, feedback: Feedback, found: _Found) -> _Written:
        """Hand a score over to Kafka, if it is not there and not under way.

        Raises:
            StoreError: its key has another score already.
            PublishError, ServiceUnavailableError: it cannot be handed over.
        """
        span = self._redact(feedback.span(found.target, self._clock.now_unix_nano()))
        identity = (span.trace_id, span.span_id)
        known = self._written.get(identity)
        if found.span is not None:
            known = _Written(found.span, None)
        if known is not None and not known.failed:
            if not _is_same(known.span, span):
                raise StoreError(
                    f"the key {feedback.key!r:.100} belongs to another score of {feedback.shown}; nothing was written.",
                    next_step="Use a new key for a new score.",
                )
            return replace(known, repeated=True)
        self._publisher = self._publisher or KafkaPublisher(self._settings)
        written = _Written(span, self._publisher.publish(SPANS, found.target.rollout_id, span))
        self._written[identity] = written
        while len(self._written) > REMEMBERED_MAX:
            self._written.popitem(last=False)
        return written

    async def _until_durable(self, written: _Written) -> None:
        if written.durable is None:
            return
        try:
            waiting = asyncio.shield(asyncio.wrap_future(written.durable))  # others may wait for it, too
            await asyncio.wait_for(waiting, self._settings.publish_timeout_s)
        except TimeoutError as error:
            raise PublishError("Kafka has not acknowledged the score.", next_step="Send it again.") from error

    def _result(self, feedback: Feedback, target: Target, written: _Written) -> dict[str, Any]:
        age_s = (self._clock.now_unix_nano() - target.opened_unix_nano) / NANOS_PER_SECOND
        too_late = age_s > self._settings.late_span_s_max
        return {
            "rollout_id": target.rollout_id,
            "attempt_id": target.attempt_id,
            "trace_id": written.span.trace_id,
            "span_id": written.span.span_id,
            "score": feedback.score,
            "key": feedback.key,
            "effect": "trajectory" if target.is_open else "too_late" if too_late else "revision",
            "repeated": written.repeated,
        }


def _values_in(body: bytes) -> tuple[Sequence[Any], bool]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise StoreError(
            f"the body is not JSON: {error}.", next_step='Send {"rollout_id": "…", "score": 1}, or a list of these.'
        ) from error
    if not isinstance(value, list):
        return [value], False
    if len(value) > SCORES_MAX:
        raise StoreError(f"there are {len(value):,} scores in the request.", next_step=f"Send {SCORES_MAX:,} at once.")
    return value, True


def _listed(error: LightstreamError | None, found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    if error is not None:
        shown = {"type": type(error).__name__, "message": error.message, "next_step": error.next_step}
        return {"error": shown}
    return found[0] if len(found) == 1 else {"pair": found}


_ROLLOUTS = """
SELECT rollout.rollout_id, opened.attempt_id, opened.opened_unix_nano, closed.attempt_id IS NULL
FROM rollouts_latest AS rollout
LEFT JOIN (
    SELECT rollout_id, attempt_id, opened_unix_nano FROM attempts_opened_raw WHERE rollout_id IN (SELECT unnest($ids))
    QUALIFY row_number() OVER (PARTITION BY rollout_id ORDER BY attempt_sequence DESC, log_offset) = 1
) AS opened USING (rollout_id)
LEFT JOIN (
    SELECT DISTINCT rollout_id, attempt_id FROM attempts_closed_raw WHERE rollout_id IN (SELECT unnest($ids))
) AS closed ON closed.rollout_id = opened.rollout_id AND closed.attempt_id = opened.attempt_id
WHERE rollout.rollout_id IN (SELECT unnest($ids))
"""

_SPANS = """
SELECT DISTINCT span.rollout_id, span.attempt_id, span.trace_id, span.span_id,
    coalesce(span.llm_response_id, span.read_response_id) AS response_id, span.llm_choice_index IS NOT NULL AS recorded,
    opened.opened_unix_nano, closed.attempt_id IS NULL AS is_open
FROM spans_raw AS span
LEFT JOIN attempts_opened_raw AS opened
    ON opened.rollout_id = span.rollout_id AND opened.attempt_id = span.attempt_id
LEFT JOIN attempts_closed_raw AS closed
    ON closed.rollout_id = span.rollout_id AND closed.attempt_id = span.attempt_id
WHERE span.span_id IN (SELECT unnest($spans)) OR span.llm_response_id IN (SELECT unnest($responses))
    OR span.read_response_id IN (SELECT unnest($responses))
"""

_WRITTEN = """
SELECT trace_id, span_id, attributes FROM spans_raw
WHERE rollout_id IN (SELECT unnest($rollouts)) AND span_id IN (SELECT unnest($spans))
ORDER BY log_offset DESC
"""


def find(cursor: DuckDBPyConnection, scores: Sequence[Feedback]) -> list[_Found | StoreError]:
    """The target of each score, with its span where that was written before; or why there is no target."""
    rollouts = {score.rollout_id for score in scores if not score.is_of_span}
    of_rollout = {row[0]: row for row in cursor.execute(_ROLLOUTS, {"ids": sorted(rollouts)}).fetchall()}
    of_span: list[Any] = []
    if any(score.is_of_span for score in scores):
        named = {
            "spans": sorted({score.span_id for score in scores if score.span_id}),
            "responses": sorted({score.response_id for score in scores if score.response_id}),
        }
        of_span = cursor.execute(_SPANS, named).fetchall()
    placed: list[tuple[Target, SpanRecord] | StoreError] = []
    for score in scores:
        try:
            row = of_rollout.get(score.rollout_id)
            target = _span_target(score, of_span) if score.is_of_span else _rollout_target(score, row)
        except StoreError as error:
            placed.append(error)
        else:
            placed.append((target, score.span(target, 0)))
    spans = [one[1] for one in placed if not isinstance(one, StoreError)]
    written = {
        "rollouts": sorted({span.rollout_id or "" for span in spans}),
        "spans": sorted({span.span_id for span in spans}),
    }
    attributes = {(row[0], row[1]): json.loads(row[2]) for row in cursor.execute(_WRITTEN, written).fetchall()}

    def there(span: SpanRecord) -> SpanRecord | None:
        found = attributes.get((span.trace_id, span.span_id))
        return None if found is None else span.model_copy(update={"attributes": found})

    return [one if isinstance(one, StoreError) else _Found(one[0], there(one[1])) for one in placed]


def _rollout_target(feedback: Feedback, row: Sequence[Any] | None) -> Target:
    if row is None:
        raise NotFoundError(f"there is no {feedback.shown}.", next_step="`lightstream sql :rollouts` lists them.")
    rollout_id, attempt_id, opened, is_open = row
    if feedback.attempt_id not in ("", attempt_id):
        raise NotFoundError(f"{feedback.attempt_id!r:.200} is not the last attempt of {feedback.shown}.")
    if attempt_id is None:
        raise StoreError(f"{feedback.shown} has no attempt yet.", next_step="Score it once it has begun.")
    return Target(rollout_id, attempt_id, opened, is_open)


def _span_target(feedback: Feedback, rows: Sequence[Sequence[Any]]) -> Target:
    """The span that is meant; of several that tell of one call, the one that the proxy recorded."""
    fitting = [
        row
        for row in rows
        if feedback.rollout_id in ("", row[0])
        and feedback.attempt_id in ("", row[1])
        and feedback.trace_id in ("", row[2])
        and feedback.span_id in ("", row[3])
        and feedback.response_id in ("", row[4])
    ]
    if not fitting:
        raise NotFoundError(
            f"there is no {feedback.shown}.", next_step="`lightstream sql 'FROM llm_calls'` lists the calls."
        )
    owned = [row for row in fitting if row[0] is not None and row[6] is not None]
    if not owned:
        raise StoreError(
            f"{feedback.shown} belongs to no rollout.", next_step="`lightstream attach-trace` gives its trace to one."
        )
    if len({(row[0], row[1]) for row in owned}) > 1 or (feedback.span_id and len({row[2] for row in owned}) > 1):
        places = ", ".join(sorted({f"{row[0]}/{row[2]}" for row in owned})[:5])
        raise StoreError(
            f"{feedback.shown} may be several: {places} (rollout/trace).", next_step="Give rollout_id or trace_id, too."
        )
    rollout_id, attempt_id, trace_id, span_id, _, _, opened, is_open = min(
        owned, key=lambda row: (not row[5], row[2], row[3])
    )
    return Target(rollout_id, attempt_id, opened, is_open, span_id, trace_id)


def _is_same(one: SpanRecord, other: SpanRecord) -> bool:
    """Whether two spans have the same score. Their times differ, and a comment may be corrected."""
    return all(one.attributes.get(name) == other.attributes.get(name) for name in SCORE_ATTRIBUTES)
