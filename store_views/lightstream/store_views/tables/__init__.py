"""The view's raw tables, declared from the record models."""

from .column import Column, Encoding, columns_of
from .declared import LOG_COLUMNS, RAW_TABLES, RawTable, tables_of

__all__ = ["LOG_COLUMNS", "RAW_TABLES", "Column", "Encoding", "RawTable", "columns_of", "tables_of"]
