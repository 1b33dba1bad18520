"""The view over Arrow Flight SQL, for ADBC, JDBC and drivers on them: the same gate, lanes, limits and token."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

import duckdb
import pyarrow as pa
from pyarrow import flight

from lightstream.runtime.http.access import Access, bearer_token
from lightstream.runtime.http.tokens import SQL
from lightstream.schemas.errors import LightstreamError, ServiceUnavailableError

from ..materialiser import ViewSource
from .admission import SqlRequest, wait_for_fetched
from .answering import Answering
from .flight_messages import decode_any, encode_any, make
from .statement import Parameters, QueryLimits, QueryOutcome, cast_parameters, check_statement

T = TypeVar("T")

LANE = "others"

CANCEL_LOOK_S = 0.05

REBUILDING_KEY = "lightstream.rebuilding"
"""Of an answer's schema: ``true`` where rows are missing, since the view has not read all of the log yet. The
``FlightInfo`` has ``lightstream.rebuilding=true`` as its metadata."""

STATEMENTS_MAX = 1_000
"""Prepared statements that nobody has closed, and answers that nobody has fetched; beyond it the oldest is let go."""

CATALOGS = "SELECT 'lightstream' AS catalog_name"

SCHEMAS = """
SELECT * FROM (SELECT 'lightstream' AS catalog_name, 'main' AS db_schema_name)
WHERE ($catalog::VARCHAR IS NULL OR catalog_name = $catalog)
    AND ($schema::VARCHAR IS NULL OR db_schema_name LIKE $schema ESCAPE '\\')
"""

TABLE_TYPES = "SELECT unnest(['TABLE', 'VIEW']) AS table_type"

TABLES = """
SELECT * FROM (
    SELECT database_name AS catalog_name, schema_name AS db_schema_name, table_name, 'TABLE' AS table_type
    FROM duckdb_tables() WHERE NOT internal
    UNION ALL
    SELECT database_name, schema_name, view_name, 'VIEW' FROM duckdb_views() WHERE NOT internal
)
WHERE catalog_name = 'lightstream'
    AND ($catalog::VARCHAR IS NULL OR catalog_name = $catalog)
    AND ($schema::VARCHAR IS NULL OR db_schema_name LIKE $schema ESCAPE '\\')
    AND ($table::VARCHAR IS NULL OR table_name LIKE $table ESCAPE '\\')
    AND (len($types::VARCHAR[]) = 0 OR list_contains($types, table_type))
ORDER BY ALL
"""

_NAME = pa.field("catalog_name", pa.string())
_SCHEMA = pa.field("db_schema_name", pa.string())
_TYPE = pa.field("table_type", pa.string(), nullable=False)
CATALOGS_SCHEMA = pa.schema([_NAME.with_nullable(False)])
SCHEMAS_SCHEMA = pa.schema([_NAME, _SCHEMA.with_nullable(False)])
TABLE_TYPES_SCHEMA = pa.schema([_TYPE])
TABLES_SCHEMA = pa.schema([_NAME, _SCHEMA, pa.field("table_name", pa.string(), nullable=False), _TYPE])
"""Types that Flight SQL says they are; drivers look closely."""

EXPLAIN_SCHEMA = pa.schema([("explain_key", pa.string()), ("explain_value", pa.string())])

SQL_INFO: Mapping[int, str | bool] = {
    0: "Lightstream",  # FLIGHT_SQL_SERVER_NAME
    1: "1",  # FLIGHT_SQL_SERVER_VERSION
    2: pa.__version__,  # FLIGHT_SQL_SERVER_ARROW_VERSION
    3: True,  # FLIGHT_SQL_SERVER_READ_ONLY
    4: True,  # FLIGHT_SQL_SERVER_SQL
    5: False,  # FLIGHT_SQL_SERVER_SUBSTRAIT
    8: False,  # FLIGHT_SQL_SERVER_TRANSACTION: none
}


@dataclass(slots=True)
class _Prepared:
    """A prepared statement and its values, once they were bound."""

    sql: str
    values: Parameters | None = None


@dataclass(frozen=True, slots=True)
class _Query:
    """A statement whose answer is to be fetched."""

    sql: str
    values: Parameters | None
    schema: pa.Schema


class FlightSqlServer(flight.FlightServerBase):
    """Serves until :meth:`shutdown`, on threads of its own.

    A statement is looked into when its client asks for its ``FlightInfo``, and runs when the answer is fetched. A
    client that cancels, or leaves, cancels its statement.

    Args:
        address: ``grpc://host:port``; port 0 for any free one.
        answering: runs statements, in ``loop``.
        materialiser: tells whether the view rebuilds, and what answers are to wait for.
        access: which bearer token a call must carry.

    Raises:
        ServiceUnavailableError: the port is taken.
    """

    def __init__(
        self,
        address: str,
        answering: Answering,
        materialiser: ViewSource,
        loop: asyncio.AbstractEventLoop,
        limits: QueryLimits,
        access: Access,
    ) -> None:
        try:
            super().__init__(address, auth_handler=_Handshake(), middleware={"access": _AccessFactory(access)})
        except (OSError, pa.ArrowException) as error:
            raise ServiceUnavailableError(
                f"Flight SQL cannot be served at {address}: {error}.",
                next_step="Set LIGHTSTREAM_VIEW_FLIGHT_PORT to a free port.",
            ) from error
        self._answering = answering
        self._materialiser = materialiser
        self._loop = loop
        self._limits = limits
        self._changing = threading.Lock()
        self._queries: OrderedDict[bytes, _Query] = OrderedDict()
        self._prepared: OrderedDict[bytes, _Prepared] = OrderedDict()

    def get_flight_info(
        self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor
    ) -> flight.FlightInfo:
        """Tell where the answer of a statement, or a list of the catalogue, is had."""
        name, message = _decoded(descriptor.command)
        match name:
            case "CommandStatementQuery":
                query = self._checked(context, message.query, None)
            case "CommandPreparedStatementQuery":
                prepared = self._prepared_statement(message.prepared_statement_handle)
                query = self._checked(context, prepared.sql, prepared.values)
            case _:
                schema = self._catalogue(context, name, message).schema
                return _info(schema, descriptor, descriptor.command or b"")
        handle = uuid.uuid4().bytes
        self._keep(self._queries, handle, query)
        ticket = encode_any(make("TicketStatementQuery", statement_handle=handle))
        rebuilding = self._rebuilding()
        return _info(_saying(query.schema, rebuilding), descriptor, ticket, f"{REBUILDING_KEY}={rebuilding}")

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        """An answer, or a list of the catalogue."""
        name, message = _decoded(ticket.ticket)
        if name != "TicketStatementQuery":
            return flight.RecordBatchStream(self._catalogue(context, name, message))
        with self._changing:
            query = self._queries.pop(message.statement_handle, None)
        if query is None:
            raise flight.FlightServerError(
                "this answer was fetched already, or was let go of; run the statement again."
            )
        # The schema goes first, so that drivers hold a stream, which they can cancel, while the statement runs.
        schema = _saying(query.schema, self._rebuilding())
        return flight.GeneratorStream(schema, self._answer(context, query, schema))

    def _answer(self, context: flight.ServerCallContext, query: _Query, schema: pa.Schema) -> Iterator[pa.Table]:
        waiting = wait_for_fetched(self._materialiser, self._answering.lanes[LANE])
        with _errors():
            _result_unless_cancelled(asyncio.run_coroutine_threadsafe(waiting, self._loop), context.is_cancelled)
        outcome = self._run(context, query.sql, query.values)
        yield outcome.table.rename_columns(schema.names).cast(schema)
        if outcome.truncated:  # drivers have no place for a note of it
            raise flight.FlightServerError(
                f"there are more rows than the first {outcome.table.num_rows:,}, which came. Add LIMIT or aggregate."
            )

    def _rebuilding(self) -> str:
        return str(self._materialiser.rebuilding is not None).lower()

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> list[bytes]:
        """Prepare a statement, or forget it."""
        name, message = _decoded(action.body.to_pybytes())
        if name == "ActionClosePreparedStatementRequest":
            with self._changing:
                self._prepared.pop(message.prepared_statement_handle, None)
            return []
        if name != "ActionCreatePreparedStatementRequest":
            raise NotImplementedError(f"the view knows no action {action.type}.")
        with _errors():
            check_statement(message.query)
        names = _parameter_names(message.query)
        nulls = [None] * len(names) if all(map(str.isdecimal, names)) else dict.fromkeys(names)
        schema = self._checked(context, message.query, nulls or None).schema
        handle = uuid.uuid4().bytes
        self._keep(self._prepared, handle, _Prepared(message.query))
        result = make(
            "ActionCreatePreparedStatementResult",
            prepared_statement_handle=handle,
            dataset_schema=schema.serialize().to_pybytes(),
            parameter_schema=_parameter_schema(message.query).serialize().to_pybytes(),
        )
        return [encode_any(result)]

    def do_put(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        """Bind values to a prepared statement: one row of them."""
        name, message = _decoded(descriptor.command)
        if name != "CommandPreparedStatementQuery":
            raise flight.FlightServerError("the view only reads.")
        prepared = self._prepared_statement(message.prepared_statement_handle)
        table = reader.read_all()
        if table.num_rows != 1:
            raise flight.FlightServerError(f"a statement takes one row of values, not {table.num_rows}.")
        (row,) = table.to_pylist()
        names = _parameter_names(prepared.sql)
        prepared.values = list(row.values()) if all(map(str.isdecimal, names)) else row
        kept = make("DoPutPreparedStatementResult", prepared_statement_handle=message.prepared_statement_handle)
        writer.write(kept.SerializeToString())

    def _run(self, context: flight.ServerCallContext, sql: str, values: Parameters | None) -> QueryOutcome:
        """The outcome of a statement, which is stopped when the call is cancelled."""
        query = SqlRequest(sql, values, {}, 0.0, self._limits)
        running = asyncio.run_coroutine_threadsafe(self._answering.run(query, LANE), self._loop)
        with _errors():
            return _result_unless_cancelled(running, context.is_cancelled)

    def _checked(self, context: flight.ServerCallContext, sql: str, values: Parameters | None) -> _Query:
        """A statement that may run, and the columns that it will have."""
        with _errors():
            check_statement(sql)
        if duckdb.extract_statements(sql)[0].type is duckdb.StatementType.EXPLAIN:
            return _Query(sql, values, EXPLAIN_SCHEMA)
        empty = self._run(context, f"FROM ({sql.rstrip().rstrip(';')}\n) LIMIT 0", values).table
        return _Query(sql, values, pa.schema([_typed(field.name, field.type) for field in empty.schema]))

    def _keep(self, kept: OrderedDict[bytes, T], handle: bytes, value: T) -> None:
        with self._changing:
            kept[handle] = value
            while len(kept) > STATEMENTS_MAX:
                kept.popitem(last=False)

    def _prepared_statement(self, handle: bytes) -> _Prepared:
        with self._changing:
            prepared = self._prepared.get(handle)
        if prepared is None:
            raise flight.FlightServerError("this prepared statement is gone; prepare it again.")
        return prepared

    def _catalogue(self, context: flight.ServerCallContext, name: str, message: Any) -> pa.Table:
        """A list that a driver asks for."""
        match name:
            case "CommandGetCatalogs":
                return self._run(context, CATALOGS, None).table.cast(CATALOGS_SCHEMA)
            case "CommandGetDbSchemas":
                values = {"catalog": _given(message, "catalog"), "schema": _given(message, "db_schema_filter_pattern")}
                return self._run(context, SCHEMAS, values).table.cast(SCHEMAS_SCHEMA)
            case "CommandGetTableTypes":
                return self._run(context, TABLE_TYPES, None).table.cast(TABLE_TYPES_SCHEMA)
            case "CommandGetTables":
                return self._tables(context, message)
            case "CommandGetSqlInfo":
                return _sql_info(list(message.info))
            case _:
                raise NotImplementedError(f"the view does not answer {name or 'this command'}.")

    def _tables(self, context: flight.ServerCallContext, message: Any) -> pa.Table:
        values = {
            "catalog": _given(message, "catalog"),
            "schema": _given(message, "db_schema_filter_pattern"),
            "table": _given(message, "table_name_filter_pattern"),
            "types": list(message.table_types),
        }
        tables = self._run(context, TABLES, values).table.cast(TABLES_SCHEMA)
        if not message.include_schema:
            return tables
        schemas = [
            self._run(context, f'FROM "{name}" LIMIT 0', None).table.schema.serialize().to_pybytes()
            for name in tables["table_name"].to_pylist()
        ]
        return tables.append_column(
            pa.field("table_schema", pa.binary(), nullable=False), pa.array(schemas, pa.binary())
        )


class _Handshake(flight.ServerAuthHandler):
    """Lets the JDBC driver begin as it does where it has a token: with a handshake. Each call, that one too, carries
    the token itself, which :class:`_AccessFactory` looks at."""

    def authenticate(self, outgoing: object, incoming: object) -> None:
        """Say nothing."""

    def is_valid(self, token: bytes) -> bytes:  # type: ignore[override]  # the stubs take the peer's name for a truth
        return b""


class _AccessFactory(flight.ServerMiddlewareFactory):
    """Refuses calls without the token."""

    def __init__(self, access: Access) -> None:
        super().__init__()
        self._access = access

    def start_call(self, info: flight.CallInfo, headers: Mapping[str, list[str] | list[bytes]]) -> None:
        sent = {name.lower(): str(values[0]) for name, values in headers.items() if values}
        status = self._access.refusal(bearer_token(sent), scopes=(SQL,))
        if status == 403:
            raise flight.FlightUnauthorizedError(f"this needs a token with the scope {SQL}.")
        if status is not None:
            raise flight.FlightUnauthenticatedError(
                "the view asks for its token. Send LIGHTSTREAM_VIEW_TOKEN as bearer."
            )


class _errors:  # noqa: N801  # used as a statement
    """Turns our errors into Flight's."""

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ServiceUnavailableError):
            raise flight.FlightUnavailableError(str(error)) from error
        if isinstance(error, LightstreamError):
            raise flight.FlightServerError(str(error)) from None


def _result_unless_cancelled(running: Future[T], is_cancelled: Callable[[], bool]) -> T:
    while True:
        try:
            return running.result(CANCEL_LOOK_S)
        except TimeoutError:
            if is_cancelled():
                running.cancel()
                raise flight.FlightCancelledError("the statement was cancelled.") from None


def _decoded(data: bytes | None) -> tuple[str, Any]:
    try:
        return decode_any(data or b"")
    except ValueError as error:
        raise flight.FlightServerError(str(error)) from None


def _info(
    schema: pa.Schema, descriptor: flight.FlightDescriptor, ticket: bytes, metadata: str = ""
) -> flight.FlightInfo:
    return flight.FlightInfo(schema, descriptor, [flight.FlightEndpoint(ticket, [])], app_metadata=metadata)


def _saying(schema: pa.Schema, rebuilding: str) -> pa.Schema:
    return schema.with_metadata({REBUILDING_KEY: rebuilding})


def _typed(name: str, kind: pa.DataType) -> pa.Field[Any]:
    """A field; text, where DuckDB leaves the type open."""
    return pa.field(name, pa.string() if pa.types.is_null(kind) else kind)


def _parameter_schema(sql: str) -> pa.Schema:
    """Parameters as drivers are to send them: of the types that the statement casts them to, else as text."""
    casts = cast_parameters(sql)
    with duckdb.connect(":memory:") as types:
        return pa.schema(
            _typed(name, types.sql(f'SELECT NULL::"{casts[name]}" AS it').to_arrow_table().schema.field(0).type)
            if name in casts
            else pa.field(name, pa.string())
            for name in _parameter_names(sql)
        )


def _parameter_names(sql: str) -> list[str]:
    """In order where they are numbers."""
    names = duckdb.extract_statements(sql)[0].named_parameters
    return sorted(names, key=lambda name: (int(name) if name.isdecimal() else 0, name))


def _given(message: Any, field: str) -> str | None:
    return getattr(message, field) if message.HasField(field) else None


def _sql_info(numbers: list[int]) -> pa.Table:
    """Description of the server, as the dense union that Flight SQL has for it."""
    known = {number: value for number, value in SQL_INFO.items() if not numbers or number in numbers}
    texts = [value for value in known.values() if isinstance(value, str)]
    truths = [value for value in known.values() if isinstance(value, bool)]
    kinds: list[int] = []
    places: list[int] = []
    for value in known.values():
        kind = 1 if isinstance(value, bool) else 0
        places.append(kinds.count(kind))
        kinds.append(kind)
    values = pa.UnionArray.from_dense(
        pa.array(kinds, pa.int8()),
        pa.array(places, pa.int32()),
        [
            pa.array(texts, pa.string()),
            pa.array(truths, pa.bool_()),
            pa.array([], pa.int64()),
            pa.array([], pa.int32()),
            pa.array([], pa.list_(pa.string())),
            pa.array([], pa.map_(pa.int32(), pa.list_(pa.int32()))),
        ],
        ["string_value", "bool_value", "bigint_value", "int32_bitmask", "string_list", "int32_to_int32_list_map"],
    )
    return pa.Table.from_arrays(
        [pa.array(known, pa.uint32()), values],
        schema=pa.schema(
            [pa.field("info_name", pa.uint32(), nullable=False), pa.field("value", values.type, nullable=False)]
        ),
    )
