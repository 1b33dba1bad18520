"""Texts inside SQL statements."""

from __future__ import annotations


def sql_literal(text: str) -> str:
    """A text as a string literal of SQL, in its quotes: no text can end it early."""
    return "'" + text.replace("'", "''") + "'"
