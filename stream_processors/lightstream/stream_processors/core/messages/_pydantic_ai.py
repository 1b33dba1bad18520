"""Pydantic AI before it followed GenAI's conventions of 1.37: events, and an agent's whole run, in attributes."""

from __future__ import annotations

from lightstream.schemas.records import SpanRecord

from ..dialects import is_list, is_map, parse_json
from ._conversation import Conversation
from ._events import conversation_of_events
from ._parts import messages_of_parts

__all__ = ["read_pydantic_ai"]

SOURCE = "pydantic_ai"


def read_pydantic_ai(span: SpanRecord) -> Conversation | None:
    """``events`` of a call; of an agent's run ``all_messages_events``, or ``pydantic_ai.all_messages``."""
    at = span.attributes
    for name in ("events", "all_messages_events"):
        events = parse_json(at.get(name))
        if is_list(events):
            told = [(str(event.get("event.name")), event) for event in events if is_map(event)]
            return _ended(conversation_of_events(SOURCE, told))
    if "pydantic_ai.all_messages" in at:
        return _ended(Conversation(SOURCE, messages_of_parts(at["pydantic_ai.all_messages"])))
    return None


def _ended(found: Conversation) -> Conversation:
    """The last message of a run is its answer."""
    if not found.answer and found.messages and found.messages[-1]["role"] == "assistant":
        found.answer = [found.messages.pop()]
    return found
