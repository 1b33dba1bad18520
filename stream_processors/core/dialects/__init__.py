"""Span dialects: token ids, wherever a tracer or server hides them, normalised to :class:`ReadCall`."""

from ._attributes import agent_name
from ._flat import grouped, in_order, unflattened
from ._images import images_of_request
from ._read_call import ReadCall, is_list, is_map, parse_json
from ._table import DIALECTS, PROXY, RECORDED, Dialect, raw_values, read_calls, read_named
from ._tools import tool_name
from ._usage import TokenUsage, token_usage
from .engine_response import read_response

__all__ = [
    "DIALECTS",
    "PROXY",
    "RECORDED",
    "Dialect",
    "ReadCall",
    "TokenUsage",
    "agent_name",
    "grouped",
    "images_of_request",
    "in_order",
    "is_list",
    "is_map",
    "parse_json",
    "raw_values",
    "read_calls",
    "read_named",
    "read_response",
    "token_usage",
    "tool_name",
    "unflattened",
]
