"""The view's SQL views: one concept a file, each a commented SELECT."""

from .declared import VIEWS, SqlView

__all__ = ["VIEWS", "SqlView"]
