"""Automatic prompt optimisation: beam search over prompts that a language model criticises and edits.

After ProTeGi (Pryzant et al. 2023, arXiv:2305.03495), whose critiques are called textual gradients. A search works on a
store, whichever it is, and keeps all that it finds out there, so that one that was killed goes on where it was.
"""

from __future__ import annotations

from .journal import Journal
from .options import ApoOptions
from .search import PromptSearch, PromptVersion, RolloutResult

__all__ = ["ApoOptions", "Journal", "PromptSearch", "PromptVersion", "RolloutResult"]
