"""Langfuse: a trace with its observations and scores, as its interface downloads it, or rows of observations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lightstream.schemas.types import Span

from .json_parts import as_float, id_in, map_in, maps_in
from .trace import SPAN_DIGITS, TRACE_DIGITS, ImportedTrace, hex_id, json_text, made_span, seconds


def is_langfuse(row: object) -> bool:
    """Whether a document is a trace with observations, one observation, or a score."""
    if not isinstance(row, dict):
        return False
    if isinstance(row.get("observations"), list) or is_score(row):
        return True
    return _of(row, "traceId", "trace_id") is not None and isinstance(row.get("type"), str)


def is_score(row: Mapping[str, Any]) -> bool:
    """Whether a row is a score that stands by itself, as exports of scores have it."""
    return (
        _of(row, "traceId", "trace_id") is not None
        and "value" in row
        and isinstance(row.get("name"), str)
        and not isinstance(row.get("type"), str)
        and not isinstance(row.get("observations"), list)
    )


def langfuse_trace(document: Mapping[str, Any]) -> ImportedTrace:
    """One trace, without its scores.

    Raises:
        SettingsError: it or one of its observations has no id; or a part of it is of another type than Langfuse writes.
    """
    head = map_in(document, "trace", "the document") or document
    trace_id = hex_id(id_in(head, "id", "the trace"), TRACE_DIGITS)
    observations = sorted(maps_in(document, "observations", "the document"), key=_ended)
    return ImportedTrace(trace_id, head.get("input"), [observation_span(row, trace_id) for row in observations])


def scores_of_trace(document: Mapping[str, Any]) -> dict[str | None, dict[str, float]]:
    """The scores in a trace: span (``None``: the whole trace) -> name -> value.

    Raises:
        SettingsError: they are of another type than Langfuse writes.
    """
    head = map_in(document, "trace", "the document") or document
    scores = maps_in(document, "scores", "the document") or maps_in(head, "scores", "the trace")
    return _scores(scores)


def score_of_row(row: Mapping[str, Any]) -> tuple[str, dict[str | None, dict[str, float]]]:
    """The trace that a score is of, and the score; none where it is a category, which is no number."""
    return hex_id(_of(row, "traceId", "trace_id"), TRACE_DIGITS), _scores([row])


def _ended(row: Mapping[str, Any]) -> float:
    return seconds(_of(row, "endTime", "end_time", "startTime", "start_time")) or 0.0


def observation_span(row: Mapping[str, Any], trace_id: str | None = None) -> Span:
    """The span of an observation.

    Raises:
        SettingsError: it has no id.
    """
    kind = str(row.get("type") or "SPAN").lower()
    name = str(row.get("name") or kind)
    attributes: dict[str, Any] = {"langfuse.observation.type": kind}
    if kind == "agent":
        attributes["agent.name"] = name
    for part in ("input", "output"):
        if row.get(part) is not None:
            attributes[f"langfuse.observation.{part}"] = json_text(row[part])
    if kind == "generation":
        model = _of(row, "model", "providedModelName", "provided_model_name")
        attributes["gen_ai.request.model"] = model
        usage = _of(row, "usageDetails", "usage_details", "usage")
        if usage is not None:
            attributes["langfuse.observation.usage_details"] = json_text(usage)
    parent = _of(row, "parentObservationId", "parent_observation_id")
    failed = row.get("level") == "ERROR"
    return made_span(
        trace_id or hex_id(_of(row, "traceId", "trace_id"), TRACE_DIGITS),
        hex_id(id_in(row, "id", "the observation"), SPAN_DIGITS),
        hex_id(parent, SPAN_DIGITS) if parent else None,
        name,
        attributes,
        start=_of(row, "startTime", "start_time"),
        end=_of(row, "endTime", "end_time"),
        error=str(_of(row, "statusMessage", "status_message") or "") if failed else None,
    )


def _scores(scores: Iterable[Mapping[str, Any]]) -> dict[str | None, dict[str, float]]:
    """Span (``None``: the whole trace) -> name -> value."""
    by_span: dict[str | None, dict[str, float]] = {}
    for score in scores:
        value = _number(score.get("value"))
        if value is not None:
            observation = _of(score, "observationId", "observation_id") or _judged_observation(score)
            target = hex_id(observation, SPAN_DIGITS) if observation else None
            by_span.setdefault(target, {})[str(score.get("name") or "")] = value
    return by_span


def _number(value: object) -> float | None:
    """A number, which rows of tables may have as text; other text is missing."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return None
    return as_float(value) if isinstance(value, bool | int | float) else None


def _judged_observation(score: Mapping[str, Any]) -> Any:
    """The observation that a score of Langfuse's third interface is about, if it is about one."""
    subject = score.get("subject")
    return subject.get("id") if isinstance(subject, dict) and subject.get("kind") == "observation" else None


def _of(row: Mapping[str, Any], *names: str) -> Any:
    """The first of the names that has a value: files are written with either spelling."""
    return next((row[name] for name in names if row.get(name) is not None), None)
