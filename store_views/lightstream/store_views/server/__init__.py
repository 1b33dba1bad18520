"""The SQL server: read-only, bounded, never in the writer's way."""

from .app import ARROW_STREAM, create_app
from .query import QueryLimits, QueryOutcome, run_query
from .serve import run

__all__ = ["ARROW_STREAM", "QueryLimits", "QueryOutcome", "create_app", "run", "run_query"]
