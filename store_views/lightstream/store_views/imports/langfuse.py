"""Langfuse: a trace with its observations and scores, as its interface downloads it, or rows of observations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lightstream.schemas.types import Span

from .json_parts import as_float, id_in, map_in, maps_in
from .trace import SPAN_DIGITS, TRACE_DIGITS, ImportedTrace, hex_id, json_text, made_span, seconds

__all__ = ["is_langfuse", "langfuse_trace", "observation_span"]


def is_langfuse(row: object) -> bool:
    """Whether a document is a trace with observations, or one observation."""
    if not isinstance(row, dict):
        return False
    if isinstance(row.get("observations"), list):
        return True
    return _of(row, "traceId", "trace_id") is not None and isinstance(row.get("type"), str)


def langfuse_trace(document: Mapping[str, Any], score: str | None) -> ImportedTrace:
    """One trace, with the scores named ``score`` (``None``: the only name) as rewards, and the others next to them.

    Raises:
        SettingsError: there are several names of scores for one thing, and ``score`` is ``None``; or it or one of its
            observations has no id; or a part of it is of another type than Langfuse writes.
    """
    head = map_in(document, "trace", "the document") or document
    trace_id = hex_id(id_in(head, "id", "the trace"), TRACE_DIGITS)
    observations = sorted(maps_in(document, "observations", "the document"), key=_ended)
    trace = ImportedTrace(trace_id, head.get("input"), [observation_span(row, trace_id) for row in observations])
    scores = maps_in(document, "scores", "the document") or maps_in(head, "scores", "the trace")
    trace.add_scores(_scores(scores), score)
    return trace


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
        value = score.get("value")
        if isinstance(value, bool | int | float):
            observation = _of(score, "observationId", "observation_id") or _judged_observation(score)
            target = hex_id(observation, SPAN_DIGITS) if observation else None
            by_span.setdefault(target, {})[str(score.get("name") or "")] = as_float(value)
    return by_span


def _judged_observation(score: Mapping[str, Any]) -> Any:
    """The observation that a score of Langfuse's third interface is about, if it is about one."""
    subject = score.get("subject")
    return subject.get("id") if isinstance(subject, dict) and subject.get("kind") == "observation" else None


def _of(row: Mapping[str, Any], *names: str) -> Any:
    """The first of the names that has a value: files are written with either spelling."""
    return next((row[name] for name in names if row.get(name) is not None), None)
