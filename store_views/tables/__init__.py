"""The view's tables: raw ones, declared from the record models, and kept ones beside them."""

from .column import Column, Encoding, columns_of
from .declared import LOG_COLUMNS, RAW_TABLES, RawTable, tables_of
from .kept import KEPT_TABLES, KeptTable

__all__ = [
    "KEPT_TABLES",
    "LOG_COLUMNS",
    "RAW_TABLES",
    "Column",
    "Encoding",
    "KeptTable",
    "RawTable",
    "columns_of",
    "tables_of",
]
