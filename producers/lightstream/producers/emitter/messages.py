"""Messages, objects and exceptions of an agent, beside its rewards."""

from __future__ import annotations

import json
import traceback
from typing import Any

from opentelemetry.semconv.attributes import exception_attributes

from .. import semconv
from .annotation import SpanCoreFields, emit_span
from .attributes import flattened

__all__ = ["emit_exception", "emit_message", "emit_object"]


def emit_message(message: str, attributes: dict[str, Any] | None = None, *, propagate: bool = True) -> SpanCoreFields:
    """Record a message.

    Raises:
        TypeError: it is not text.
        SettingsError: no tracer is active.
    """
    if not isinstance(message, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers without types
        raise TypeError(f"a message must be text, not {type(message).__name__}")
    values = flattened(attributes or {}) | {semconv.AGL_MESSAGE_BODY: message}
    return emit_span(semconv.AGL_MESSAGE, values, propagate=propagate)


def emit_object(value: Any, attributes: dict[str, Any] | None = None, *, propagate: bool = True) -> SpanCoreFields:
    """Record a value: text, numbers and booleans as they are, anything else as JSON.

    Raises:
        TypeError: it cannot be written as JSON.
        SettingsError: no tracer is active.
    """
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    values = flattened(attributes or {}) | {semconv.AGL_OBJECT_TYPE: name}
    if isinstance(value, (str, bool, int, float)):
        values[semconv.AGL_OBJECT_LITERAL] = value
    else:
        values[semconv.AGL_OBJECT_JSON] = json.dumps(value)
    return emit_span(semconv.AGL_OBJECT, values, propagate=propagate)


def emit_exception(
    exception: BaseException, attributes: dict[str, Any] | None = None, *, propagate: bool = True
) -> SpanCoreFields:
    """Record an exception that the agent handled.

    Raises:
        TypeError: it is not an exception.
        SettingsError: no tracer is active.
    """
    if not isinstance(exception, BaseException):  # pyright: ignore[reportUnnecessaryIsInstance]  # as above
        raise TypeError(f"an exception is needed, not a {type(exception).__name__}")
    values = flattened(attributes or {}) | {
        exception_attributes.EXCEPTION_TYPE: type(exception).__name__,
        exception_attributes.EXCEPTION_MESSAGE: str(exception),
        exception_attributes.EXCEPTION_ESCAPED: True,
        exception_attributes.EXCEPTION_STACKTRACE: "".join(traceback.format_exception(exception)),
    }
    return emit_span(
        semconv.AGL_EXCEPTION,
        values,
        propagate=propagate,
        before_end=lambda span: span.record_exception(exception),
    )
