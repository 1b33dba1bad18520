"""The SQL server: read-only, bounded, never in the writer's way."""

from .app import create_app
from .formats import ARROW_STREAM
from .query import QueryLimits, QueryOutcome, run_query
from .serve import run

__all__ = ["ARROW_STREAM", "QueryLimits", "QueryOutcome", "create_app", "run", "run_query"]
