"""From a pydantic record to its Avro schema. The model is the source; ``make schemas`` writes the files."""

from __future__ import annotations

import types
from typing import Any, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from ..records import Record, RecordEnum

NAMESPACE = "lightstream"

_PRIMITIVES: dict[Any, str] = {bool: "boolean", int: "long", float: "double", str: "string", bytes: "bytes"}

_SCALARS: list[Any] = ["null", "boolean", "long", "double", "string", "bytes"]
_BY_NAME: list[Any] = [*_SCALARS, "lightstream.Int32List", "lightstream.AttributeList", "lightstream.AttributeMap"]

ATTRIBUTE_VALUE: list[Any] = [
    *_SCALARS,
    {"type": "record", "name": "lightstream.Int32List", "fields": [{"name": "int32_le", "type": "bytes"}]},
    {
        "type": "record",
        "name": "lightstream.AttributeList",
        "fields": [
            {
                "name": "items",
                "type": {
                    "type": "array",
                    "items": [
                        *_SCALARS,
                        "lightstream.Int32List",
                        "lightstream.AttributeList",
                        {
                            "type": "record",
                            "name": "lightstream.AttributeMap",
                            "fields": [{"name": "entries", "type": {"type": "map", "values": _BY_NAME}}],
                        },
                    ],
                },
            }
        ],
    },
    "lightstream.AttributeMap",
]
"""Any OTLP AnyValue. Long lists of int32 are packed; other lists and maps are records so that they can nest."""


def schema_of(record: type[Record]) -> dict[str, Any]:
    """The Avro schema of ``record``: a named record in namespace ``lightstream``, with documentation and defaults.

    Raises:
        TypeError: a field has a type that no rule maps.
    """
    return _record(record, set())


def _record(record: type[Record], known: set[str]) -> dict[str, Any]:
    known.add(record.__name__)
    return {
        "type": "record",
        "name": record.__name__,
        "namespace": NAMESPACE,
        "doc": _first_line(record),
        "fields": [_field(name, field, known) for name, field in record.model_fields.items()],
    }


def _field(name: str, field: FieldInfo, known: set[str]) -> dict[str, Any]:
    avro: dict[str, Any] = {"name": name, "type": _type(field.annotation, known)}
    if not field.is_required():
        avro["default"] = _default(field.get_default(call_default_factory=True))
    return avro


def _type(annotation: Any, known: set[str]) -> Any:
    if annotation in _PRIMITIVES:
        return _PRIMITIVES[annotation]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        inner = [argument for argument in arguments if argument is not type(None)]
        if len(inner) == 1 and len(arguments) == 2:
            return ["null", _type(inner[0], known)]
    if origin is list:
        return {"type": "array", "items": _type(arguments[0], known)}
    if origin is dict and arguments[0] is str:
        return {"type": "map", "values": _attribute_value(known) if arguments[1] is Any else _type(arguments[1], known)}
    if isinstance(annotation, type) and issubclass(annotation, RecordEnum):
        return _named(annotation.__name__, known) or {
            "type": "enum",
            "name": annotation.__name__,
            "namespace": NAMESPACE,
            "symbols": [member.value for member in annotation],
            "default": "unknown",
        }
    if isinstance(annotation, type) and issubclass(annotation, Record):
        return _named(annotation.__name__, known) or _record(annotation, known)
    raise TypeError(f"no Avro type for {annotation!r}")


def _named(name: str, known: set[str]) -> str | None:
    """The full name, when the type was defined earlier in the schema; marks it as defined otherwise."""
    if name in known:
        return f"{NAMESPACE}.{name}"
    known.add(name)
    return None


def _attribute_value(known: set[str]) -> list[Any]:
    return _BY_NAME if _named("AttributeList", known) else ATTRIBUTE_VALUE


def _default(value: Any) -> Any:
    if isinstance(value, Record):
        return {name: _default(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, RecordEnum):
        return value.value
    return value


def _first_line(record: type[Record]) -> str:
    return (record.__doc__ or "").strip().split("\n", 1)[0]
