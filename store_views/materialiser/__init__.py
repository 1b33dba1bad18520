"""The materialiser: the log as DuckDB tables, rows and offsets always agreeing."""

from .database import ViewDatabase
from .materialiser import Materialiser, default_path
from .metrics import view_metrics
from .positions import Place, Positions
from .source import ViewSource

__all__ = ["Materialiser", "Place", "Positions", "ViewDatabase", "ViewSource", "default_path", "view_metrics"]
