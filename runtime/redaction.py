"""Takes secrets out of spans before they go to Kafka: by names of attributes, and by a pattern."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import translate
from typing import Any, cast

from pydantic_core import from_json, to_json

from lightstream.schemas.records import LlmCall, SpanRecord

from .settings import Settings

REDACTED = "[redacted]"

TEXTS_OF_CALL = ("request_json", "response_json", "error_message", "sampling_json", "response_tokens_text")
TOKENS_OF_CALL = (
    "prompt_token_ids",
    "response_token_ids",
    "response_logprobs",
    "response_tokens_text",
    "response_token_ends",
)
TOKENS_NAMED = re.compile(r"token_ids|logprobs")


class Redaction:
    """Rules of the settings. Calling it returns a span without what they name; the span itself is unchanged.

    Where a text changes, the span's token ids go, too: whoever has the tokenizer could read them. Such a call is no
    training data any more (``no_token_ids``). Ids of rollout, attempt, trace and span stay.

    Args:
        settings: ``redact_attributes`` and ``redact_pattern``; without them nothing changes.
    """

    def __init__(self, settings: Settings) -> None:
        names = [translate(name.strip()) for name in settings.redact_attributes.split(",") if name.strip()]
        self._names = re.compile("|".join(names)) if names else None
        self._pattern = None if settings.redact_pattern is None else re.compile(settings.redact_pattern)

    @property
    def is_active(self) -> bool:
        """Whether there are any rules."""
        return self._names is not None or self._pattern is not None

    def __call__(self, record: SpanRecord) -> SpanRecord:
        """The span without what the rules name."""
        if not self.is_active:
            return record
        changes: dict[str, Any] = {
            "name": self.text(record.name),
            "status_message": self.text(record.status_message),
            "attributes": self._value(record.attributes),
            "resource_attributes": self._value(record.resource_attributes),
            "events": [
                event.model_copy(update={"name": self.text(event.name), "attributes": self._value(event.attributes)})
                for event in record.events
            ],
            "links": [link.model_copy(update={"attributes": self._value(link.attributes)}) for link in record.links],
        }
        call = record.llm_call
        if call is not None:
            changes["llm_call"] = LlmCall.model_copy(
                call, update={name: self._optional(getattr(call, name)) for name in TEXTS_OF_CALL}
            )
        if all(getattr(record, name) == value for name, value in changes.items()):
            return record
        changes["attributes"] = _without_tokens(changes["attributes"])
        if call is not None:
            changes["llm_call"] = LlmCall.model_copy(changes["llm_call"], update=dict.fromkeys(TOKENS_OF_CALL))
        return record.model_copy(update=changes)

    def text(self, text: str) -> str:
        """The text without its matches; in JSON, each text within it, however it is escaped."""
        if text[:1] in ("{", "["):
            try:
                found = from_json(text)
            except ValueError:
                pass  # it only looks like it
            else:
                redacted = self._value(found)
                return text if redacted == found else to_json(redacted).decode()
        return text if self._pattern is None else self._pattern.sub(REDACTED, text)

    def _optional(self, text: str | None) -> str | None:
        return None if text is None else self.text(text)

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, bytes):
            text = value.decode("utf-8", "replace")
            return value if self.text(text) == text else REDACTED.encode()
        if isinstance(value, Mapping):
            items = cast("Mapping[str, Any]", value).items()
            return {self._key(name): REDACTED if self._is_named(name) else self._value(item) for name, item in items}
        if isinstance(value, list):
            return [self._value(item) for item in cast("Iterable[Any]", value)]
        if isinstance(value, tuple):
            return tuple(self._value(item) for item in cast("Iterable[Any]", value))
        return value

    def _key(self, name: str) -> str:
        return name if self._pattern is None else self._pattern.sub(REDACTED, name)

    def _is_named(self, name: str) -> bool:
        return self._names is not None and self._names.match(name) is not None


def _without_tokens(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: REDACTED if TOKENS_NAMED.search(name) else value for name, value in attributes.items()}
