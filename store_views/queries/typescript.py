"""The rows of the named queries as types of TypeScript:
``python -m lightstream.store_views.queries.typescript > store_views/dashboard/src/api/rows.ts``.

What the pages of the dashboard read is held against them, so a column with another name ends the check of their types.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import duckdb
import pyarrow as pa

from ..materialiser import ViewDatabase
from .named import QUERIES, NamedQuery

HEAD = "/** Columns of the named queries, written by `make docs`. */\n\nexport interface Rows {\n"


def rows_as_typescript() -> str:
    """An interface with the rows of each query, by its name; any value may be null."""
    with tempfile.TemporaryDirectory() as folder:
        database = ViewDatabase(Path(folder) / "view.duckdb", {})
        try:
            rows = [_row(database.cursor(), query) for query in QUERIES.values()]
        finally:
            database.close()
    return HEAD + "".join(rows) + "}\n"


def _row(connection: duckdb.DuckDBPyConnection, query: NamedQuery) -> str:
    # A value for each parameter, since a line that a parameter narrows is left out without it.
    values = {one.name: one.default or "1" for one in query.parameters}
    schema = connection.sql(query.sql, params=values or None).to_arrow_table().schema
    columns = "".join(f"    {field.name}: {_type_of(field.type)} | null;\n" for field in schema)
    name = query.name if query.name.isidentifier() else f'"{query.name}"'
    return f"  {name}: {{\n{columns}  }};\n"


def _type_of(kind: pa.DataType) -> str:
    """As JSON has it: an integer may come as text, since it may lie beyond 2^53."""
    if pa.types.is_boolean(kind):
        return "boolean"
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "number"
    if pa.types.is_map(kind):
        return f"Record<string, {_type_of(kind.item_type)} | null>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"({_type_of(kind.value_type)} | null)[]"
    if pa.types.is_struct(kind):
        return f"{{ {'; '.join(f'{field.name}: {_type_of(field.type)} | null' for field in kind)} }}"
    return "string"


if __name__ == "__main__":
    sys.stdout.write(rows_as_typescript())
