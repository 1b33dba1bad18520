"""What an agent returned, as a report of the first protocol. Pure."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan

from lightstream.producers.runner import Outcome
from lightstream.schemas.attribute_names import ERROR_MESSAGE, ERROR_TYPE
from lightstream.schemas.types import RolloutLegacy, Span, Task, Triplet

__all__ = ["error_of", "report_of"]


def report_of(
    task: Task, result: Any, seen: Sequence[Span], triplets_in: Callable[[list[Any]], list[Triplet]]
) -> RolloutLegacy:
    """The report of a task.

    Args:
        result: the final reward; triplets; spans (the SDK's, ours, or JSON); a report; or ``None``.
        seen: the spans that the tracer saw, which count where the agent returned none.
        triplets_in: finds triplets in spans.

    Raises:
        TypeError: ``result`` is something else.
    """
    report = RolloutLegacy(rollout_id=task.rollout_id, task=task)
    spans: list[Any] = list(seen)
    if isinstance(result, RolloutLegacy):
        report = result.model_copy(update={"rollout_id": task.rollout_id, "task": result.task or task})
    elif isinstance(result, int | float):
        report.final_reward = float(result)
    elif isinstance(result, list) and result and all(isinstance(item, Triplet) for item in result):
        report.triplets = result
    elif isinstance(result, list) and result and all(isinstance(item, dict) for item in result):
        report.trace, spans = result, []
    elif isinstance(result, list) and all(isinstance(item, ReadableSpan | Span) for item in result):
        spans = result or spans
    elif result is not None:
        raise TypeError(f"an agent returns its reward, None, triplets, spans or a report; got {result!r:.200}")
    if spans and report.trace is None:
        report.trace = [_json_of(span) for span in spans]
    if spans and report.triplets is None:
        report.triplets = triplets_in(spans)
    if report.final_reward is None and report.triplets:
        report.final_reward = report.triplets[-1].reward
    return report


def error_of(task: Task, error: Exception) -> RolloutLegacy:
    """The report of a task that failed."""
    outcome = Outcome.of_error(error)
    return RolloutLegacy(
        rollout_id=task.rollout_id,
        task=task,
        logs=["".join(traceback.format_exception_only(error)).strip()],
        metadata={ERROR_TYPE: outcome.error_type, ERROR_MESSAGE: outcome.error_message},
    )


def _json_of(span: ReadableSpan | Span) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(span.to_json()) if isinstance(span, ReadableSpan) else span.model_dump()
    return said
