"""Trajectories out of the view, page by page, and into files: Parquet, Arrow, chat lines, ATIF."""

from .arrow_rows import ROW_LEVELS, arrow_batches, schema_of
from .atif import ATIF_VERSION, to_atif
from .chat import chat_lines
from .conversations import Told, calls_of_text, conversations_of, said_by
from .files import write_arrow, write_json_lines, write_parquet
from .paging import Answer, Ask, rows_of
from .reading import read_trajectories

__all__ = [
    "ATIF_VERSION",
    "ROW_LEVELS",
    "Answer",
    "Ask",
    "Told",
    "arrow_batches",
    "calls_of_text",
    "chat_lines",
    "conversations_of",
    "read_trajectories",
    "rows_of",
    "said_by",
    "schema_of",
    "to_atif",
    "write_arrow",
    "write_json_lines",
    "write_parquet",
]
