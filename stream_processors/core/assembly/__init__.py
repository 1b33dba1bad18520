"""The assembler: the spans of an attempt become one trajectory, exactly, and each LLM call's fate is recorded."""

from ._calls import Observation
from ._late_spans import AttemptKey, DeferredAssembly, LateSpan
from ._reading import AttemptReading, read_attempt
from ._reward_targets import add_spans_around
from ._rules import AssemblyRules
from ._trainability import LOGPROB_MAX
from ._tree import Node, SpanKey, resolve
from .assembler import KEEP_ALL, LONG_SPANS_MIN, Assembler

__all__ = [
    "KEEP_ALL",
    "LOGPROB_MAX",
    "LONG_SPANS_MIN",
    "Assembler",
    "AssemblyRules",
    "AttemptKey",
    "AttemptReading",
    "DeferredAssembly",
    "LateSpan",
    "Node",
    "Observation",
    "SpanKey",
    "add_spans_around",
    "read_attempt",
    "resolve",
]
