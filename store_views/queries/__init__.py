"""Queries by name: one a file, with its meaning and its parameters at its head."""

from .named import QUERIES, NamedQuery, QueryParameter, named_query, queries_as_markdown

__all__ = ["QUERIES", "NamedQuery", "QueryParameter", "named_query", "queries_as_markdown"]
