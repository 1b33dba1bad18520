"""Questions answered in SQL, over a DuckDB file: ``python -m examples.text_to_sql``."""
