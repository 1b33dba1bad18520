"""The view's SQL views: one concept a file, each a commented SELECT."""

from .declared import VIEWS, SqlView, time_column

__all__ = ["VIEWS", "SqlView", "time_column"]
