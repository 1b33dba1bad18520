"""Emitters of annotations, messages, objects and exceptions."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from lightstream.schemas.types import Attributes, SpanCoreFields, TraceStatus

from .. import semconv
from ..attributes import (
    check_attributes_sanity,
    flatten_attributes,
    format_exception_attributes,
    full_qualified_name,
    sanitize_attributes,
)
from .tracer_in_use import speaking_tracer


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


def emit_message(message: str, attributes: Mapping[str, Any] | None = None, propagate: bool = True) -> SpanCoreFields:
    """Record a message.

    Args:
        message: the text.
        attributes: further ones; nested values are flattened, other kinds of values are written as JSON.
        propagate: ``False`` makes the fields but sends nothing.

    Raises:
        TypeError: it is not text.
        NoActiveTracerError: no tracer is active.
    """
    if not isinstance(message, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers without types
        raise TypeError(f"a message must be text, not {type(message).__name__}: {message!r:.200}")
    values = {semconv.AGL_MESSAGE_BODY: message, **_further(attributes)}
    return speaking_tracer(propagate).create_span(semconv.AGL_MESSAGE, values)


def emit_object(
    object: Any,  # noqa: A002  # Agent Lightning's name
    attributes: Mapping[str, Any] | None = None,
    propagate: bool = True,
) -> SpanCoreFields:
    """Record a value; ``get_object_value`` reads it back.

    Args:
        object: text, a number, a boolean or bytes; anything else is written as JSON.
        attributes, propagate: see :func:`emit_message`.

    Raises:
        RuntimeError: it cannot be written as JSON.
        NoActiveTracerError: no tracer is active.
    """
    values = {**encode_object(object), **_further(attributes)}
    return speaking_tracer(propagate).create_span(semconv.AGL_OBJECT, values, status=TraceStatus(status_code="OK"))


def encode_object(object: Any) -> dict[str, Any]:  # noqa: A002  # Agent Lightning's name
    """A value as the attributes of an object's span.

    Raises:
        RuntimeError: it cannot be written as JSON.
    """
    if isinstance(object, (str, int, float)):
        return {semconv.AGL_OBJECT_TYPE: type(object).__name__, semconv.AGL_OBJECT_LITERAL: str(object)}
    if isinstance(object, bytes):
        return {semconv.AGL_OBJECT_TYPE: "bytes", semconv.AGL_OBJECT_LITERAL: base64.b64encode(object).decode()}
    try:
        written = json.dumps(object)
    except (TypeError, ValueError) as error:
        raise RuntimeError(f"a {type(object).__name__} cannot be written as JSON: {error}") from error
    return {semconv.AGL_OBJECT_TYPE: full_qualified_name(type(object)), semconv.AGL_OBJECT_JSON: written}


def emit_exception(
    exception: BaseException, attributes: Mapping[str, Any] | None = None, propagate: bool = True
) -> SpanCoreFields:
    """Record an exception that the agent handled.

    Args:
        exception: it, with its trace.
        attributes, propagate: see :func:`emit_message`.

    Raises:
        TypeError: it is not an exception.
        NoActiveTracerError: no tracer is active.
    """
    if not isinstance(exception, BaseException):  # pyright: ignore[reportUnnecessaryIsInstance]  # as above
        raise TypeError(f"an exception is needed, not a {type(exception).__name__}: {exception!r:.200}")
    values = {**format_exception_attributes(exception), **_further(attributes)}
    return speaking_tracer(propagate).create_span(semconv.AGL_EXCEPTION, values, status=TraceStatus(status_code="OK"))


def _further(attributes: Mapping[str, Any] | None) -> Attributes:
    return sanitize_attributes(flatten_attributes(attributes or {}))
