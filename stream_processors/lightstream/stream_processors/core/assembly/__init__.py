"""The assembler: the spans of an attempt become one trajectory, exactly, and each LLM call's fate is recorded."""

from ._checks import LOGPROB_MAX
from ._closed import AttemptKey
from ._index import add_spans_around
from ._late import LateSpan
from ._observation import Observation
from ._reading import AttemptReading, read_attempt
from ._rules import AssemblyRules
from ._tree import Node, SpanKey, resolve
from ._unfinished import UnfinishedAttempt
from .assembler import HOLD_ALL, LONG_SPANS_MIN, Assembler

__all__ = [
    "HOLD_ALL",
    "LOGPROB_MAX",
    "LONG_SPANS_MIN",
    "Assembler",
    "AssemblyRules",
    "AttemptKey",
    "AttemptReading",
    "LateSpan",
    "Node",
    "Observation",
    "SpanKey",
    "UnfinishedAttempt",
    "add_spans_around",
    "read_attempt",
    "resolve",
]
