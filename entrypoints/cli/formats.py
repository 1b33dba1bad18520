"""The values of ``--format``."""

from __future__ import annotations

from enum import StrEnum


class Format(StrEnum):
    """The output of a command: for people, or for programs."""

    TABLE = "table"
    JSON = "json"


class TraceFormat(StrEnum):
    """The form of traces that were recorded elsewhere."""

    AUTO = "auto"
    OTLP = "otlp"
    LANGFUSE = "langfuse"
    PHOENIX = "phoenix"
    ATIF = "atif"


class RowFormat(StrEnum):
    """The output of a query."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
