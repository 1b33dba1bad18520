"""Questions answered in SQL: ``python -m examples.text_to_sql``."""

from __future__ import annotations

from examples.program import program

from .run import run_text_to_sql

if __name__ == "__main__":
    program("text_to_sql", run_text_to_sql, steps=90)
