"""One trace in several files is one trace."""

from __future__ import annotations

import math
from collections.abc import Iterable

from lightstream.schemas.types import Span

from .trace import ImportedTrace

__all__ = ["merged"]


def merged(traces: Iterable[ImportedTrace]) -> list[ImportedTrace]:
    """Each trace once, with the spans of all that have its id. ``traces`` are unchanged.

    A span that is there twice counts once. Spans of several files are in the order in which they ended, those without
    a time behind them.
    """
    by_id: dict[str, list[ImportedTrace]] = {}
    for trace in traces:
        by_id.setdefault(trace.trace_id, []).append(trace)
    return [parts[0] if len(parts) == 1 else _one(parts) for parts in by_id.values()]


def _one(parts: list[ImportedTrace]) -> ImportedTrace:
    spans: list[Span] = []
    by_span_id: dict[str, list[Span]] = {}
    for span in (span for part in parts for span in part.spans):
        known = by_span_id.setdefault(span.span_id, [])
        if span not in known:
            known.append(span)
            spans.append(span)
    spans.sort(key=_ended)
    task = next((part.task for part in parts if part.task is not None), None)
    return ImportedTrace(parts[0].trace_id, task, spans, {score for part in parts for score in part.scores})


def _ended(span: Span) -> float:
    return span.end_time or span.start_time or math.inf
