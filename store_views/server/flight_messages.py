"""Messages of Flight SQL (Arrow's ``FlightSql.proto``) that a server which only reads has use for."""

from __future__ import annotations

from typing import Any

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

PACKAGE = "arrow.flight.protocol.sql"

_TYPES = descriptor_pb2.FieldDescriptorProto
_KINDS = {
    "bool": _TYPES.TYPE_BOOL,
    "bytes": _TYPES.TYPE_BYTES,
    "enum": _TYPES.TYPE_INT32,  # the same on the wire
    "string": _TYPES.TYPE_STRING,
    "uint32": _TYPES.TYPE_UINT32,
}

_MESSAGES = {
    "CommandGetSqlInfo": ["repeated uint32 info 1"],
    "CommandGetCatalogs": [],
    "CommandGetDbSchemas": ["string catalog 1", "string db_schema_filter_pattern 2"],
    "CommandGetTables": [
        "string catalog 1",
        "string db_schema_filter_pattern 2",
        "string table_name_filter_pattern 3",
        "repeated string table_types 4",
        "bool include_schema 5",
    ],
    "CommandGetTableTypes": [],
    "CommandStatementQuery": ["string query 1", "bytes transaction_id 2"],
    "CommandStatementUpdate": ["string query 1", "bytes transaction_id 2"],
    "CommandPreparedStatementQuery": ["bytes prepared_statement_handle 1"],
    "CommandPreparedStatementUpdate": ["bytes prepared_statement_handle 1"],
    "TicketStatementQuery": ["bytes statement_handle 1"],
    "ActionCreatePreparedStatementRequest": ["string query 1", "bytes transaction_id 2"],
    "ActionCreatePreparedStatementResult": [
        "bytes prepared_statement_handle 1",
        "bytes dataset_schema 2",
        "bytes parameter_schema 3",
    ],
    "ActionClosePreparedStatementRequest": ["bytes prepared_statement_handle 1"],
    "DoPutPreparedStatementResult": ["bytes prepared_statement_handle 1"],
}
"""Name -> fields, as in the proto file; each that is not repeated tells whether it was set."""


def _classes() -> dict[str, type[Message]]:
    file = descriptor_pb2.FileDescriptorProto(name="lightstream/FlightSql.proto", package=PACKAGE, syntax="proto2")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field in fields:
            *repeated, kind, field_name, number = field.split()
            message.field.add(
                name=field_name,
                number=int(number),
                type=_KINDS[kind],
                label=_TYPES.LABEL_REPEATED if repeated else _TYPES.LABEL_OPTIONAL,
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in _MESSAGES
    }


_CLASSES = _classes()


def make(name: str, **fields: Any) -> Any:
    """A message of this name."""
    return _CLASSES[name](**fields)


def encode_any(message: Any) -> bytes:
    """The message in a ``google.protobuf.Any``, as Flight SQL sends them."""
    wrapped = any_pb2.Any()
    wrapped.Pack(message)
    data: bytes = wrapped.SerializeToString()
    return data


def decode_any(data: bytes) -> tuple[str, Any]:
    """The message's name without its package, and the message; an empty name where it is none of these.

    Raises:
        ValueError: the bytes are no message.
    """
    wrapped = any_pb2.Any()
    try:
        wrapped.ParseFromString(data)
        package, _, name = wrapped.TypeName().rpartition(".")
        if package != PACKAGE or name not in _CLASSES:
            return "", None
        message = _CLASSES[name]()
        message.ParseFromString(wrapped.value)
    except DecodeError as error:
        raise ValueError(f"not a message of Flight SQL: {error}") from error
    return name, message
