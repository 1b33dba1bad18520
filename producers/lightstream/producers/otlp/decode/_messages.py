"""The OTLP messages as this gateway reads them: ``opentelemetry-proto``'s, with the types of some fields changed.

Both changes keep the wire format, where text, bytes and messages look alike (a length and that many bytes):

- Text is read as bytes, and decoded by us: one byte that is not UTF-8 would otherwise cost the whole request.
- Arrays and key-value lists of an ``AnyValue`` stay undecoded. A span with 640 token ids has 640 messages there;
  parsing them costs ten times what the rest does (40 ms against 4 for 512 such spans), and numpy reads all numbers at
  once.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.logs.v1 import logs_pb2
from opentelemetry.proto.resource.v1 import resource_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

__all__ = ["ArrayValue", "ExportLogsRequest", "ExportTraceRequest", "KeyValueList", "has_fields_of_another_kind"]

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
    """Whether a field of ``message`` came with another wire type than it has: it is some other message.

    A parser keeps such a field among the unknown ones, so that a log record reads as a span without anything.
    """
    known = message.DESCRIPTOR.fields_by_number
    return any(field.field_number in known for field in UnknownFieldSet(message))
