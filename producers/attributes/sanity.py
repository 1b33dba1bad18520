"""Check values of attributes for OpenTelemetry, and convert others."""

from __future__ import annotations

import json
import traceback
from collections.abc import Mapping
from typing import Any

from lightstream.schemas.types import Attributes, AttributeValue

_PLAIN = (str, bool, int, float)


def full_qualified_name(obj: type) -> str:
    """``module.Class``; of builtins the name alone."""
    return obj.__qualname__ if obj.__module__ == "builtins" else f"{obj.__module__}.{obj.__qualname__}"


def check_attributes_sanity(attributes: Mapping[Any, Any]) -> None:
    """Refuse values that are not attributes.

    Raises:
        ValueError: a name is not a string, or a value is not a string, number, boolean, or a list of one of these.
    """
    for name, value in attributes.items():
        if not isinstance(name, str):
            raise ValueError(f"the attribute name {name!r:.200} must be a string, not {type(name).__name__}")
        if isinstance(value, list):
            try:
                sanitize_list_attribute_sanity(value)
            except ValueError as error:
                raise ValueError(f"the attribute {name!r}: {error}") from error
        elif not isinstance(value, _PLAIN):
            raise ValueError(f"the attribute {name!r} may not be a {type(value).__name__}: {value!r:.200}")


def sanitize_attributes(attributes: Mapping[str, Any], force: bool = True) -> Attributes:
    """``attributes``, with other kinds of values written as JSON.

    Args:
        attributes: flat.
        force: what JSON does not know becomes its text; ``False`` refuses it.

    Raises:
        ValueError: a value cannot be written as JSON.
    """
    sanitized: Attributes = {}
    for name, value in attributes.items():
        try:
            sanitized[name] = sanitize_attribute_value(value, force=force)
        except ValueError as error:
            raise ValueError(f"the attribute {name!r}: {error}") from error
    return sanitized


def sanitize_attribute_value(object: Any, force: bool = True) -> AttributeValue:  # noqa: A002  # Agent Lightning's name
    """As :func:`sanitize_attributes`, for one value."""
    if isinstance(object, _PLAIN):
        return object
    if isinstance(object, list):
        try:
            return sanitize_list_attribute_sanity(object)
        except ValueError:
            pass  # as JSON, then
    try:
        return json.dumps(object, default=str if force else None)
    except (TypeError, ValueError) as error:
        raise ValueError(f"a {type(object).__name__} cannot be written as JSON: {error}") from error


def sanitize_list_attribute_sanity(maybe_list: list[Any]) -> AttributeValue:
    """A copy of a list of plain values, all of one type; mixed numbers become the wider type.

    Raises:
        ValueError: there is no such type.
    """
    kinds: set[Any] = set(map(type, maybe_list))
    if len(kinds) <= 1 and kinds.issubset(_PLAIN):
        return list(maybe_list)
    if kinds <= {bool, int}:
        return [int(item) for item in maybe_list]
    if kinds <= {bool, int, float}:
        return [float(item) for item in maybe_list]
    if all(isinstance(item, str) for item in maybe_list):  # of subclasses, enums say
        return list(maybe_list)
    raise ValueError(f"a list must hold plain values of one type, not of {sorted(kind.__name__ for kind in kinds)}")


def format_exception_attributes(exception: BaseException) -> Attributes:
    """Type, message and trace, by OpenTelemetry's names."""
    from opentelemetry.semconv.attributes import exception_attributes

    attributes: Attributes = {
        exception_attributes.EXCEPTION_TYPE: type(exception).__name__,
        exception_attributes.EXCEPTION_MESSAGE: str(exception),
        exception_attributes.EXCEPTION_ESCAPED: True,
    }
    trace = "".join(traceback.format_exception(exception))
    if trace.strip():
        attributes[exception_attributes.EXCEPTION_STACKTRACE] = trace
    return attributes
