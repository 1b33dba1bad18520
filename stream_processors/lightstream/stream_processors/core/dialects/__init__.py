"""Span dialects: where each tracer and server hides token ids, normalised to :class:`ReadCall`."""

from ._attributes import agent_name
from ._flat import grouped, in_order, unflattened
from ._model import ReadCall
from ._registry import DIALECTS, Dialect, read_calls
from ._values import is_list, is_map, parse_json
from .engine_response import read_response
from .gen_ai import read_named
from .litellm_legacy import raw_values
from .recorded import PROXY, RECORDED

__all__ = [
    "DIALECTS",
    "PROXY",
    "RECORDED",
    "Dialect",
    "ReadCall",
    "agent_name",
    "grouped",
    "in_order",
    "is_list",
    "is_map",
    "parse_json",
    "raw_values",
    "read_calls",
    "read_named",
    "read_response",
    "unflattened",
]
