"""What was said in an LLM call, as OpenAI chat messages, whichever dialect the span speaks."""

from ..dialects import grouped, in_order, unflattened
from ._conversation import Conversation, as_text, text_of
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
]
