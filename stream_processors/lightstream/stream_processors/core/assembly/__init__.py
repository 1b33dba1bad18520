"""The assembler: the spans of an attempt become one trajectory, exactly, and each LLM call's fate is told."""

from ._checks import LOGPROB_MAX
from ._rules import AssemblyRules
from .assembler import Assembler

__all__ = ["LOGPROB_MAX", "Assembler", "AssemblyRules"]
