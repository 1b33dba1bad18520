"""Decides which statements run: those that read the catalogue's tables and views, and compute.

DuckDB's parser names every table, table function and function of a statement (``json_serialize_sql``). Tables and table
functions must be on a list, and so must functions (``functions.txt``): whoever may ask in SQL reads no file, not the
view's own either, and changes nothing. What a later DuckDB brings is refused until somebody has looked at it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Set
from difflib import get_close_matches
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import duckdb

from lightstream.schemas.errors import QueryError

from ..materialiser.view_file import CATALOG
from ..tables import KEPT_TABLES, RAW_TABLES
from ..views import VIEWS

__all__ = ["cast_parameters", "check_statement"]

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


def check_statement(sql: str) -> None:
    """Refuse anything but one statement that reads what it may.

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


_remembered = lru_cache(maxsize=512)(_refusal)
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
    left = [value]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            yield value
            left.extend(value.values())
        elif isinstance(value, list):
            left.extend(value)


def _explained(sql: str) -> str:
    """Return the statement that an EXPLAIN is about: what follows its own words."""
    tokens = [(start, kind) for start, kind in duckdb.tokenize(sql) if kind is not duckdb.token_type.comment]
    words = [found[0].upper() if (found := _WORD.match(sql, start)) else "" for start, _ in tokens]
    place = 2 if words[1:2] == ["ANALYZE"] else 1
    if words[place : place + 1] == ["("] and words[place + 1] in ("ANALYZE", "FORMAT"):
        place = words.index(")") + 1
    return sql[tokens[place][0] :]


_WORD = re.compile(r"\w+|.")
