"""The meanings of tables, views and columns, which the file carries as comments (``duckdb_columns()`` has them)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

import duckdb

from lightstream.schemas.policy_names import MODEL_VERSION
from lightstream.schemas.records import AttemptState, GateCheck, LlmCall
from lightstream.schemas.records.meanings import SHARED_MEANINGS, field_meanings

from ..sql_literal import sql_literal
from ..tables import KEPT_TABLES, RAW_TABLES
from .declared import VIEWS, SqlView, time_column, times_of

MODEL_FAMILY = f"CREATE OR REPLACE MACRO model_family(name) AS regexp_replace(name, {sql_literal(MODEL_VERSION)}, '')"
"""As Python's function of this name."""

OFFSETS_DOC = "How far the tables reflect each partition."
OFFSETS = {
    "topic": "the topic, without prefix.",
    "partition": "the partition.",
    "next_offset": "first offset that the tables do not reflect yet.",
}
ORIGIN_DOC = "What the file was made from."
ORIGIN = {"name": "what, such as the id of a topic.", "value": "its value."}


def make_views(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the views, or make them again, and comment on them, on the tables, and on all their columns."""
    columns: dict[str, list[str]] = {table.name: [column.name for column in table.all_columns] for table in RAW_TABLES}
    columns |= {table.name: list(table.types) for table in KEPT_TABLES}
    columns |= {"offsets": list(OFFSETS), "origin": list(ORIGIN)}
    connection.execute(MODEL_FAMILY)
    for view in VIEWS:
        selected = [name for name, *_ in connection.execute(f"DESCRIBE {view.select}").fetchall()]
        connection.execute(view.ddl(selected))
        columns[view.name] = [*dict.fromkeys([*selected, *times_of(selected)])]
    meanings = column_meanings()
    for kind, name, doc in _relations():
        connection.execute(f"COMMENT ON {kind} {name} IS {sql_literal(doc)}")
        for column in columns[name]:
            connection.execute(f'COMMENT ON COLUMN {name}."{column}" IS {sql_literal(meanings[name][column])}')


def views_fingerprint() -> str:
    """Return another text where :func:`make_views` makes something else: it takes most of a second."""
    parts = [duckdb.__version__, MODEL_FAMILY, repr(column_meanings()), repr([*_relations()]), *map(_text_of, VIEWS)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def column_meanings() -> dict[str, Mapping[str, str]]:
    """Table or view -> column -> meaning. Columns that are nowhere may be among them."""
    known: dict[str, Mapping[str, str]] = {
        record.__name__: field_meanings(record) for record in (AttemptState, GateCheck, LlmCall)
    }
    known |= {table.name: {column.name: column.meaning for column in table.all_columns} for table in RAW_TABLES}
    known |= {table.name: table.meanings for table in KEPT_TABLES}
    known |= {"offsets": OFFSETS, "origin": ORIGIN}
    for view in VIEWS:
        inherited = {column: text for source in reversed(view.columns_of) for column, text in known[source].items()}
        meanings = inherited | dict(view.meanings)
        known[view.name] = meanings | _times(meanings)
    return {name: {**SHARED_MEANINGS, **meanings} for name, meanings in known.items()}


def _relations() -> Iterator[tuple[str, str, str]]:
    """``TABLE`` or ``VIEW``, name, and meaning of each."""
    for table in RAW_TABLES:
        yield "TABLE", table.name, table.doc
    for kept in KEPT_TABLES:
        yield "TABLE", kept.name, kept.doc
    yield "TABLE", "offsets", OFFSETS_DOC
    yield "TABLE", "origin", ORIGIN_DOC
    for view in VIEWS:
        yield "VIEW", view.name, view.doc


def _text_of(view: SqlView) -> str:
    return view.ddl([])


def _times(meanings: Mapping[str, str]) -> dict[str, str]:
    return {at: f"`{name}` as a time (UTC)." for name in meanings if (at := time_column(name)) is not None}
