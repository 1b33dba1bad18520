"""Traces that were recorded elsewhere, into a run: OTLP, Langfuse, Phoenix, ATIF."""

from .files import read_files, read_traces
from .into_store import ImportReport, import_traces
from .kinds import FORMATS
from .spool import Spool
from .trace import ImportedTrace, check_score, check_score_name

__all__ = [
    "FORMATS",
    "ImportReport",
    "ImportedTrace",
    "Spool",
    "check_score",
    "check_score_name",
    "import_traces",
    "read_files",
    "read_traces",
]
