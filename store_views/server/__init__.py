"""The SQL server: read-only, bounded, never in the writer's way."""

from .answer import ARROW_STREAM
from .app import create_app
from .serve import run
from .statement import QueryLimits, QueryOutcome, run_query

__all__ = ["ARROW_STREAM", "QueryLimits", "QueryOutcome", "create_app", "run", "run_query"]
