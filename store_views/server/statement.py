"""One statement: whether it may run, and how it is run within limits, stopped and cancelled.

DuckDB's parser names every table, table function and function of a statement (``json_serialize_sql``). Tables and table
functions must be on a list, and so must functions (``functions.txt``): whoever may ask in SQL reads no file, not the
view's own either, and changes nothing. What a later DuckDB brings is refused until somebody has looked at it.
"""

from __future__ import annotations

import json
import math
import re
import threading
import time
from collections.abc import Callable, Generator, Iterator, Set
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import duckdb
import pyarrow as pa

from lightstream.schemas.errors import QueryError

from ..materialiser.view_file import CATALOG
from ..tables import KEPT_TABLES, RAW_TABLES
from ..views import VIEWS
from .cost import COSTLY, too_costly

T = TypeVar("T")

NARROW_IT = "Narrow it (WHERE, LIMIT), or ask for more time with timeout_s."

Parameters: TypeAlias = list[Any] | dict[str, Any]
"""Values of a statement's ``?`` and ``$1``, in order, or of its ``$name``."""

HUGE_INTEGERS = ("HUGEINT", "UHUGEINT")

FETCH_ROWS = 2048
"""DuckDB's own vector size."""

INTERRUPT_INTERVAL_S = 0.05

SQL_SHOWN_CHARACTERS = 500

READING_STATEMENTS = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)
"""DESCRIBE, SHOW, SUMMARIZE, FROM, VALUES, TABLE and WITH are parsed as SELECT."""

STATEMENT_CHARACTERS_MAX = 128 * 1024
"""The parser's tree of a statement is some hundred times as large: this takes the gate and DuckDB's planner, which heed
no interrupt, a second of processor."""

REMEMBERED_CHARACTERS_MAX = 16 * 1024

CATALOGUE_FUNCTIONS = ("duckdb_columns", "duckdb_functions", "duckdb_tables", "duckdb_types", "duckdb_views")

TABLES = frozenset(
    [table.name for table in RAW_TABLES]
    + [table.name for table in KEPT_TABLES]
    + [view.name for view in VIEWS]
    + ["offsets", "origin", *CATALOGUE_FUNCTIONS]
)
"""Tables and views that may be read."""

CATALOGUE_SCHEMA = "information_schema"

SHOWN = frozenset({'"tables"', "__show_tables_expanded"})
"""``SHOW TABLES`` and ``SHOW ALL TABLES``."""

TABLE_FUNCTIONS = frozenset(
    [*CATALOGUE_FUNCTIONS, "generate_series", "json_each", "json_tree", "pragma_table_info", "range", "unnest"]
)

FUNCTIONS = frozenset(Path(__file__).with_name("functions.txt").read_text("utf-8").splitlines())
"""Functions, operators and macros of DuckDB that may be called. Not among them are those with side effects, other than
random numbers and identifiers; those that look for the tables of a statement in a text, and so into files
(``json_serialize_plan``); macros that stand for such; and what the planner alone has a use for."""

NAME = re.compile(r"(?!duckdb_|pg_|pragma_|sqlite_)\w+")
"""A name that, where WITH does not give it, is neither a view of DuckDB's own nor taken for a file's path."""

LISTED = "Ask for tables and views of the catalogue (SHOW TABLES lists them), and range, generate_series, unnest."


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """Limits of one statement.

    Attributes:
        timeout_s: seconds until it is interrupted.
        timeout_s_max: the most seconds that a request may ask for in place of ``timeout_s``.
        rows_max, bytes_max: size of the answer (Arrow's bytes); what is beyond is cut off, and said so.
    """

    timeout_s: float = 30.0
    rows_max: int = 100_000
    bytes_max: int = 256 * 1024 * 1024
    timeout_s_max: float = 3600.0


@dataclass(frozen=True, slots=True)
class QueryOutcome:
    """The answer. ``types`` are DuckDB's names; ``truncated`` says that rows were cut off."""

    columns: list[str]
    types: list[str]
    table: pa.Table
    truncated: bool


class Statement:
    """One statement, from its arrival to its end. On any thread.

    Args:
        on_ignored: called once with this, on a thread of its own, when the statement has ignored being stopped for
            more than ``ignored_s`` seconds.
        processor_s: seconds of processor that the process has had.
    """

    def __init__(
        self,
        query_id: str = "",
        sql: str = "",
        lane: str = "",
        *,
        on_ignored: Callable[[Statement], None] | None = None,
        ignored_s: float = 2.0,
        processor_s: Callable[[], float] = time.process_time,
    ) -> None:
        self.query_id = query_id
        self.sql = sql
        self.lane = lane
        self.is_cancelled = False
        self.is_running = False
        self._arrived_s = time.monotonic()
        self._told_s = self._told_processor_s = math.inf
        self._on_ignored = on_ignored
        self._ignored_s = ignored_s
        self._processor_s = processor_s
        self._wake = threading.Event()
        self._ended = threading.Event()

    def as_json(self) -> dict[str, object]:
        """A row of ``GET /v1/queries``."""
        return {
            "query_id": self.query_id,
            "sql": self.sql[:SQL_SHOWN_CHARACTERS],
            "lane": self.lane,
            "seconds": round(time.monotonic() - self._arrived_s, 3),
            "state": "running" if self.is_running else "waiting",
        }

    @property
    def ignored_for_s(self) -> float:
        """For how many seconds it has run on since it was told to stop; 0 where it has ended, or was not told.

        Time in which the process itself got no processor does not count: on a machine that is overloaded or was
        suspended, or while a disk stalls, a statement that would stop cannot either.
        """
        if self._ended.is_set():
            return 0.0
        passed_s = min(time.monotonic() - self._told_s, self._processor_s() - self._told_processor_s)
        return max(0.0, passed_s)

    def cancel(self) -> None:
        """Stop it: at once, or when it would begin."""
        self.is_cancelled = True
        self._wake.set()

    @contextmanager
    def limited(self, connection: duckdb.DuckDBPyConnection, timeout_s: float) -> Generator[threading.Event]:
        """Interrupt the block's statement when its time is over or it was cancelled; repeats, as DuckDB forgets early
        interrupts. Gives an event that is set from then on."""
        stopped = threading.Event()
        watcher = threading.Thread(
            target=self._watch, args=(connection, timeout_s, stopped), daemon=True, name="lightstream-query-limit"
        )
        watcher.start()
        self.is_running = True
        try:
            yield stopped
        finally:
            self.is_running = False
            self._ended.set()
            self._wake.set()
            watcher.join()

    def _watch(self, connection: duckdb.DuckDBPyConnection, timeout_s: float, stopped: threading.Event) -> None:
        self._wake.wait(timeout_s)
        self._told_s, self._told_processor_s = time.monotonic(), self._processor_s()
        while not self._ended.is_set():
            stopped.set()
            connection.interrupt()
            if self._on_ignored is not None and self.ignored_for_s > self._ignored_s:
                self._on_ignored(self)
                self._on_ignored = None
            self._ended.wait(INTERRUPT_INTERVAL_S)


def run_query(
    connection: duckdb.DuckDBPyConnection,
    sql: str,
    limits: QueryLimits,
    parameters: Parameters | None = None,
    statement: Statement | None = None,
) -> QueryOutcome:
    """Run one reading statement in a read-only transaction, on one snapshot of the data.

    Args:
        connection: a cursor of its own; it is closed here.
        parameters: values for the statement's placeholders; never parsed as SQL.
        statement: by which it is cancelled.

    Raises:
        QueryError: not one reading statement, wrong SQL or parameters, too slow, or cancelled. Nothing has changed.
    """

    def fetched(connection: duckdb.DuckDBPyConnection) -> QueryOutcome:
        return _fetch(connection.sql(sql, params=parameters), limits)

    with closing(connection):
        check_statement(sql, parameters)  # nothing interrupts this, and that is not held against the statement
        return run_reading(connection, fetched, limits.timeout_s, statement, if_slow=NARROW_IT)


def run_reading(
    connection: duckdb.DuckDBPyConnection,
    read: Callable[[duckdb.DuckDBPyConnection], T],
    timeout_s: float,
    statement: Statement | None = None,
    *,
    if_slow: str = "Ask again when the view has less to do.",
) -> T:
    """Run one or several statements that read, in a read-only transaction: all of it on one snapshot of the data.

    Args:
        connection: a cursor of its own; it is closed here.
        read: gets the connection.
        timeout_s: seconds until whatever it runs is interrupted.
        statement: by which it is cancelled.
        if_slow: what the client is to do where the time is over.

    Raises:
        QueryError: DuckDB cannot run it, or it was too slow, or cancelled; and what ``read`` raises.
    """
    statement = statement or Statement()
    try:
        with statement.limited(connection, timeout_s) as stopped:
            try:
                connection.execute("BEGIN TRANSACTION READ ONLY")
                return read(connection)
            except (duckdb.Error, OSError, OverflowError, pa.ArrowInvalid) as error:
                if statement.is_cancelled:
                    raise QueryError("the statement was cancelled.") from error
                if stopped.is_set():
                    raise QueryError(
                        f"the statement took longer than {timeout_s:g} s and was stopped.",
                        next_step=if_slow,
                    ) from error
                raise QueryError(str(error).strip()) from error
            finally:
                with suppress(duckdb.Error):
                    connection.execute("ROLLBACK")
    finally:
        connection.close()


def _fetch(relation: duckdb.DuckDBPyRelation, limits: QueryLimits) -> QueryOutcome:
    columns, types = list(relation.columns), [str(name) for name in relation.types]
    reader: pa.RecordBatchReader = relation.to_arrow_reader(FETCH_ROWS)
    batches: list[pa.RecordBatch] = []
    rows_left, bytes_left, truncated = limits.rows_max, limits.bytes_max, False
    for batch in reader:
        if batch.num_rows > rows_left or batch.nbytes > bytes_left:
            fitting = min(rows_left, batch.num_rows * bytes_left // max(batch.nbytes, 1))
            batches.append(batch.slice(0, fitting))
            truncated = True
            break
        batches.append(batch)
        rows_left -= batch.num_rows
        bytes_left -= batch.nbytes
    table = pa.Table.from_batches(batches, reader.schema)
    reader.close()
    for index, name in enumerate(types):
        if name in HUGE_INTEGERS:
            types[index], values = _usual_numbers(table.column(index))
            table = table.set_column(index, table.field(index).with_type(values.type), values)
    return QueryOutcome(columns, types, table, truncated)


def _usual_numbers(values: pa.ChunkedArray[Any]) -> tuple[str, pa.ChunkedArray[Any]]:
    """Numbers of 128 bits, which sums of integers are in DuckDB and hardly any client has a type for, and what they
    are now: BIGINT where all of them fit, else DOUBLE."""
    try:
        return "BIGINT", values.cast(pa.int64())
    except pa.ArrowInvalid:
        return "DOUBLE", values.cast(pa.float64())


def check_statement(sql: str, parameters: Parameters | None = None) -> None:
    """Refuse anything but one statement that reads allowed tables, and whose constants make no call too costly.

    Args:
        parameters: values of its placeholders: constants, too.

    Raises:
        QueryError: names what is wrong.
    """
    try:
        statements = duckdb.extract_statements(sql)
    except duckdb.Error as error:
        raise QueryError(str(error).strip()) from error
    if len(statements) != 1:
        raise QueryError(f"exactly one statement is run at a time, not {len(statements)}.")
    if statements[0].type not in READING_STATEMENTS:
        raise QueryError(
            f"the view only reads; this is {statements[0].type.name}.",
            next_step="Use SELECT, WITH, FROM, DESCRIBE, SHOW, SUMMARIZE, EXPLAIN, or PIVOT with its values (IN …).",
        )
    if len(sql) > STATEMENT_CHARACTERS_MAX:
        raise QueryError(
            f"the statement has {len(sql):,} characters; {STATEMENT_CHARACTERS_MAX:,} are allowed.",
            next_step="Give values as params.",
        )
    reads = sql if statements[0].type is duckdb.StatementType.SELECT else _explained(sql)
    if refused := (_remembered(reads) if len(reads) <= REMEMBERED_CHARACTERS_MAX else _refusal(reads)):
        raise QueryError(refused, next_step=LISTED)
    if parameters and (_remembered_by_values if len(reads) <= REMEMBERED_CHARACTERS_MAX else _goes_by_values)(reads):
        refused = too_costly(_parser(), _tree(reads), parameters)
    else:
        refused = (_remembered_cost if len(reads) <= REMEMBERED_CHARACTERS_MAX else _cost)(reads)
    if refused:
        raise QueryError(refused, next_step="Ask for less in one call.")


def cast_parameters(sql: str) -> dict[str, str]:
    """Types of the parameters that a checked statement casts, by name or number: ``?::BIGINT`` is ``{"1": "BIGINT"}``.

    Only types of one name; nothing else says of which type a parameter is.
    """
    return {
        child["identifier"]: node["type_expr"]["type_name"]
        for node in _nodes(_tree(sql).get("statements", []))
        if node.get("type") == "OPERATOR_CAST"
        and (child := node["child"]).get("type") == "VALUE_PARAMETER"
        and not node["type_expr"]["children"]
    }


def _tree(sql: str) -> dict[str, Any]:
    """The tree that DuckDB's parser makes of a statement.

    Raises:
        RecursionError: it is nested too deeply.
    """
    with _parser().cursor() as parser:
        (text,) = parser.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchone() or ("{}",)
    parsed: dict[str, Any] = json.loads(text)
    return parsed


@cache
def _parser() -> duckdb.DuckDBPyConnection:
    """A database without tables: to open one takes thirty times as long as to parse a statement."""
    return duckdb.connect(":memory:")


def _refusal(sql: str) -> str | None:
    """Return why a statement is refused, or ``None``."""
    try:
        parsed = _tree(sql)
    except RecursionError:
        return "the statement is nested too deeply."
    if parsed.get("error", True):
        return f"the statement cannot be looked into: {parsed.get('error_message', 'the parser said nothing')}."
    nodes = list(_nodes(parsed["statements"]))
    local: set[str] = {name for node in nodes for name in _common_tables(node)}
    for node in nodes:
        if refused := _refused_node(node, local):
            return refused
    return None


def _cost(sql: str) -> str | None:
    """Return which call is too costly by the constants in the statement, or ``None``."""
    tree = _tree(sql)
    return too_costly(_parser(), tree) if _calls_costly(tree) else None


def _goes_by_values(sql: str) -> bool:
    """True if the cost of a call may go by the values of placeholders."""
    tree = _tree(sql)
    return _calls_costly(tree) and any(node.get("type") == "VALUE_PARAMETER" for node in _nodes(tree["statements"]))


def _calls_costly(tree: dict[str, Any]) -> bool:
    return any(str(node.get("function_name", "")).lower() in COSTLY for node in _nodes(tree["statements"]))


_remembered = lru_cache(maxsize=512)(_refusal)
_remembered_cost = lru_cache(maxsize=512)(_cost)
_remembered_by_values = lru_cache(maxsize=512)(_goes_by_values)
"""Programs send the same statements again and again, with other parameters."""


def _refused_node(node: dict[str, Any], local: Set[str]) -> str | None:
    kind = node.get("type")
    if kind == "BASE_TABLE":
        return None if _is_readable(node, local) else _no_table(node)
    if kind == "TABLE_FUNCTION":
        name = node["function"].get("function_name", "")
        return None if name.lower() in TABLE_FUNCTIONS else f"the table function {name!r} is not allowed."
    if kind == "SHOW_REF" and node.get("query") is None and node.get("table_name") not in SHOWN:
        return f"SHOW {node.get('table_name')} is not allowed."
    name = str(node.get("function_name") or "")
    if not name or name.lower() in FUNCTIONS or name.lower() in TABLE_FUNCTIONS:
        return None
    return f"the function {name!r} does not exist, or is not for queries{_near(name, FUNCTIONS)}."


def _is_readable(node: dict[str, Any], local: Set[str]) -> bool:
    table, schema, catalog = (str(node[key]).lower() for key in ("table_name", "schema_name", "catalog_name"))
    if not schema and not catalog and table in local and NAME.fullmatch(table):
        return True
    if catalog in ("", "system") and schema == CATALOGUE_SCHEMA and NAME.fullmatch(table):
        return True
    # `lightstream.rollouts` names the catalogue, and is parsed as a schema.
    return table in TABLES and schema in ("", "main", CATALOG) and catalog in ("", CATALOG)


def _no_table(node: dict[str, Any]) -> str:
    name = ".".join(part for key in ("catalog_name", "schema_name", "table_name") if (part := str(node[key])))
    return f"the table {name!r} does not exist, or is not for queries{_near(str(node['table_name']), TABLES)}."


def _near(name: str, known: Set[str]) -> str:
    near = ", ".join(get_close_matches(name.lower(), sorted(known)))
    return f" (there is {near})" if near else ""


def _common_tables(node: dict[str, Any]) -> Iterator[str]:
    """Names that WITH gives in this node."""
    common = node.get("cte_map")
    for entry in common["map"] if isinstance(common, dict) else ():
        yield str(entry["key"]).lower()
    if node.get("type") == "RECURSIVE_CTE_NODE":
        yield str(node.get("cte_name", "")).lower()


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    """Every object of the tree."""
    stack = [value]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            yield value
            stack.extend(value.values())
        elif isinstance(value, list):
            stack.extend(value)


def _explained(sql: str) -> str:
    """Return the statement that an EXPLAIN is about: what follows its own words."""
    tokens = [(start, kind) for start, kind in duckdb.tokenize(sql) if kind is not duckdb.token_type.comment]
    words = [found[0].upper() if (found := _WORD.match(sql, start)) else "" for start, _ in tokens]
    place = 2 if words[1:2] == ["ANALYZE"] else 1
    if words[place : place + 1] == ["("] and words[place + 1] in ("ANALYZE", "FORMAT"):
        place = words.index(")") + 1
    return sql[tokens[place][0] :]


_WORD = re.compile(r"\w+|.")
