"""The messages of an LLM call, as OpenAI's chat API has them, from spans of any dialect."""

from ..dialects import grouped, in_order, unflattened
from ._conversation import Conversation, as_text, text_of
from ._incomplete import why_incomplete
from ._readers import READERS, Reader, read_conversation

__all__ = [
    "READERS",
    "Conversation",
    "Reader",
    "as_text",
    "grouped",
    "in_order",
    "read_conversation",
    "text_of",
    "unflattened",
    "why_incomplete",
]
