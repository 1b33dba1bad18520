"""Annotations: what an agent says about its rollout, or a part of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightstream.schemas.types import SpanCoreFields, TraceStatus

from .. import semconv
from ..attributes import check_attributes_sanity, flatten_attributes, sanitize_attributes
from .tracer_in_use import speaking_tracer

__all__ = ["emit_annotation"]


def emit_annotation(annotation: Mapping[str, Any], propagate: bool = True) -> SpanCoreFields:
    """Annotate the running attempt. Nested values are flattened (``{"a": {"b": 1}}`` becomes ``a.b``).

    Args:
        annotation: attribute names and values.
        propagate: ``False`` makes the fields but sends nothing.

    Raises:
        ValueError: a value is of a kind that no attribute has; nothing was sent.
        NoActiveTracerError: no tracer is active, so the annotation would be lost.
    """
    flat = flatten_attributes(annotation)
    check_attributes_sanity(flat)
    return speaking_tracer(propagate).create_span(
        semconv.AGL_ANNOTATION, sanitize_attributes(flat), status=TraceStatus(status_code="OK")
    )
