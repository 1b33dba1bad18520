"""OTLP's protobuf messages as this gateway reads them, and the values of their attributes. Pure.

The messages are ``opentelemetry-proto``'s, with the types of some fields changed. Both changes keep the wire format,
where text, bytes and messages look alike (a length and that many bytes):

- Text is read as bytes, and decoded by us: one byte that is not UTF-8 would otherwise cost the whole request.
- Arrays and key-value lists of an ``AnyValue`` stay undecoded. A span with 640 token ids has 640 messages there;
  parsing them costs ten times what the rest does (40 ms against 4 for 512 such spans), and numpy reads all numbers at
  once.

Values are ``None``, bool, int, float, str, bytes, and lists and dicts of these. Text not in UTF-8 gets replacement
characters; of a key that comes twice the last value counts, as in the SDKs.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message import DecodeError as WireError
from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.logs.v1 import logs_pb2
from opentelemetry.proto.resource.v1 import resource_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

from lightstream.schemas.errors import DecodeError

from ._deferred_arrays import DeferredArrays
from ._records import DEPTH_MAX, too_deep

FILES: tuple[Any, ...] = (common_pb2, resource_pb2, trace_pb2, logs_pb2, trace_service_pb2, logs_service_pb2)
"""Each after those that it imports."""

UNDECODED = ("array_value", "kvlist_value")


def _pool() -> Any:
    pool = descriptor_pool.DescriptorPool()
    for module in FILES:
        file = FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        for message in file.message_type:
            _relax(message)
        pool.AddSerializedFile(file.SerializeToString())
    return pool


def _relax(message: DescriptorProto) -> None:
    for field in message.field:
        if field.type == FieldDescriptorProto.TYPE_STRING or field.name in UNDECODED:
            field.type = FieldDescriptorProto.TYPE_BYTES
            field.ClearField("type_name")
    for nested in message.nested_type:
        _relax(nested)


_POOL = _pool()


def _message(name: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"opentelemetry.proto.{name}"))


ArrayValue = _message("common.v1.ArrayValue")
KeyValueList = _message("common.v1.KeyValueList")
ExportTraceRequest = _message("collector.trace.v1.ExportTraceServiceRequest")
ExportLogsRequest = _message("collector.logs.v1.ExportLogsServiceRequest")


def has_fields_of_another_kind(message: Any) -> bool:
    """True if a field of ``message`` came with another wire type than it has: it is some other message.

    A parser keeps such a field among the unknown ones, so that a log record reads as a span without anything.
    """
    known = message.DESCRIPTOR.fields_by_number
    return any(field.field_number in known for field in UnknownFieldSet(message))


NAMES_KEPT = 4096
"""Attribute names, decoded: there are few, and they come again with every span."""

NAME_KEPT_BYTES_MAX = 256


def text(data: bytes) -> str:
    """UTF-8, with replacement characters where it is invalid."""
    return data.decode("utf-8", "replace")


def _name(data: bytes) -> str:
    return _kept_name(data) if len(data) <= NAME_KEPT_BYTES_MAX else text(data)


@lru_cache(maxsize=NAMES_KEPT)
def _kept_name(data: bytes) -> str:
    return text(data)


def attributes_of(pairs: Iterable[Any], deferred: DeferredArrays | None = None, depth: int = 0) -> dict[str, Any]:
    """Attributes by name, from ``KeyValue`` messages.

    Args:
        deferred: takes long arrays of numbers, and fills them in when it is told to.
        depth: of the values that these are in.

    Raises:
        DecodeError: a value is not a message, or is nested too deeply.
    """
    attributes: dict[str, Any] = {}
    for pair in pairs:
        name = _name(pair.key)
        value = pair.value
        kind = value.WhichOneof("value")
        if kind == "string_value":
            attributes[name] = text(value.string_value)
        elif kind != "array_value" or deferred is None or not deferred.defer(attributes, name, value.array_value):
            attributes[name] = value_of(value, depth)
    return attributes


def value_of(value: Any, depth: int = 0) -> Any:
    """The value of an ``AnyValue``.

    Raises:
        DecodeError: it is not a message, or is nested too deeply.
    """
    kind = value.WhichOneof("value")
    if kind == "string_value":
        return text(value.string_value)
    if kind == "array_value":
        return list_of(value.array_value, depth + 1)
    if kind == "kvlist_value":
        return attributes_of(_parsed(KeyValueList, value.kvlist_value, depth + 1).values, None, depth + 1)
    return None if kind is None else getattr(value, kind)


def list_of(data: bytes, depth: int = 0) -> list[Any]:
    """The values of an encoded ``ArrayValue``, one by one.

    Raises:
        DecodeError: it is not a message, or is nested too deeply.
    """
    return [value_of(item, depth) for item in _parsed(ArrayValue, data, depth).values]


def _parsed(message: Any, data: bytes, depth: int) -> Any:
    if depth > DEPTH_MAX:
        raise too_deep()
    try:
        return message.FromString(data)
    except WireError as error:
        raise DecodeError(f"an attribute's value is malformed: {error}") from error
