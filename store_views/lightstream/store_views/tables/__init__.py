"""The view's tables, declared from the record models."""

from .column import Column, Encoding, columns_of
from .declared import LATEST_COLUMNS, LATEST_DDL, LATEST_DOC, LATEST_TABLE, LOG_COLUMNS, RAW_TABLES, RawTable, tables_of

__all__ = [
    "LATEST_COLUMNS",
    "LATEST_DDL",
    "LATEST_DOC",
    "LATEST_TABLE",
    "LOG_COLUMNS",
    "RAW_TABLES",
    "Column",
    "Encoding",
    "RawTable",
    "columns_of",
    "tables_of",
]
