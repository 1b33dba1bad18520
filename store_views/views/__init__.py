"""The view's SQL views: one concept a file, each a commented SELECT."""

from .comments import OFFSETS_DOC, column_meanings, make_views, views_fingerprint
from .declared import VIEWS, SqlView, time_column

__all__ = ["OFFSETS_DOC", "VIEWS", "SqlView", "column_meanings", "make_views", "time_column", "views_fingerprint"]
