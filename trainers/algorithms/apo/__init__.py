"""Automatic prompt optimisation: beam search over prompts that a language model criticises and edits.

After ProTeGi (Pryzant et al. 2023, arXiv:2305.03495), whose critiques are called textual gradients. A search works on a
store, whichever it is, and keeps all that it finds out there, so that one that was killed goes on where it was.
"""

from __future__ import annotations

from .editor import complete, conversations
from .journal import Finding, Journal
from .options import ApoOptions
from .prompt_rollouts import PromptRollouts, RolloutResult, errors_of, wrong_placeholders
from .search import PromptSearch, PromptVersion

__all__ = [
    "ApoOptions",
    "Finding",
    "Journal",
    "PromptRollouts",
    "PromptSearch",
    "PromptVersion",
    "RolloutResult",
    "complete",
    "conversations",
    "errors_of",
    "wrong_placeholders",
]
