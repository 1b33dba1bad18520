"""Meanings of the columns of tables and views. Each is declared once, where the column comes from.

A column of a raw table has the meaning of the record's field; one of a view has its own, from the head of the view's
file, or that of the table, view or record it is taken from.
"""

from __future__ import annotations

from collections.abc import Mapping

from lightstream.schemas.records import AttemptState, LlmCall
from lightstream.schemas.records.meanings import SHARED_MEANINGS, field_meanings

from .tables import LATEST_COLUMNS, LATEST_TABLE, RAW_TABLES
from .views import VIEWS, time_column

__all__ = ["column_meanings"]

OFFSETS = {
    "topic": "the topic, without prefix.",
    "partition": "the partition.",
    "next_offset": "first offset that the tables do not reflect yet.",
}
ATTEMPT_COUNT = {"attempt_count": "how many attempts the rollout has had so far."}


def column_meanings() -> dict[str, Mapping[str, str]]:
    """Table or view -> column -> meaning. Columns that are nowhere may be among them."""
    known: dict[str, Mapping[str, str]] = {
        record.__name__: field_meanings(record) for record in (AttemptState, LlmCall)
    }
    known |= {table.name: {column.name: column.meaning for column in table.all_columns} for table in RAW_TABLES}
    known[LATEST_TABLE] = {column.name: column.meaning for column in LATEST_COLUMNS} | ATTEMPT_COUNT
    known["offsets"] = OFFSETS
    for view in VIEWS:
        taken = {column: text for source in reversed(view.columns_of) for column, text in known[source].items()}
        meanings = taken | dict(view.meanings)
        known[view.name] = meanings | _times(meanings)
    return {name: {**SHARED_MEANINGS, **meanings} for name, meanings in known.items()}


def _times(meanings: Mapping[str, str]) -> dict[str, str]:
    return {at: f"`{name}` as a time (UTC)." for name in meanings if (at := time_column(name)) is not None}
