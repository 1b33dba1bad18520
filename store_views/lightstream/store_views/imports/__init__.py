"""Traces that were recorded elsewhere, into a run: OTLP, Langfuse, Phoenix, ATIF."""

from .files import FORMATS, read_traces
from .into_store import ImportReport, import_traces
from .trace import ImportedTrace, check_score

__all__ = ["FORMATS", "ImportReport", "ImportedTrace", "check_score", "import_traces", "read_traces"]
