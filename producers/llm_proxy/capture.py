"""Takes tokens and the message in its normal form out of raw answers; hides fields that nobody asked for. Pure.

Understood: vLLM's ``return_token_ids`` (``prompt_token_ids`` next to the choices, ``token_ids`` in each), the same
inside LiteLLM's ``provider_specific_fields``, OpenAI's ``logprobs.content[]`` (``logprob`` and ``token``), and for
completions ``logprobs.token_logprobs[]`` and ``logprobs.tokens[]``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lightstream.schemas.policy_names import version_of_model, version_of_text

from .normal_form import PROVIDER_FIELDS, Message, Part

_PROMPT_IDS = "prompt_token_ids"
_RESPONSE_IDS = "token_ids"
_VERSION_RUNS = "policy_version_runs"

_ID_IN_PLACE_OF_TEXT = "token_id:"
"""Beginning of a token's text in vLLM's answer, where a request asks for its id instead."""

INTERRUPTED = "interrupted"
"""Finish reason of an answer that the model server hands back, to be gone on with."""


@dataclass(slots=True)
class Choice:
    """One sampled sequence. ``token_ids``, ``logprobs`` and ``token_texts`` are ``None`` where the upstream sends none.

    ``prompt_token_ids`` is its own prompt, where a request had several. ``version_runs`` are versions of the policy by
    the first token that each sampled, where the upstream says so: at least those after the first. ``is_interrupted``:
    the upstream has handed it back, to be gone on with. ``stop_text`` is the stop sequence that ended it, where the
    upstream says so.
    """

    index: int
    prompt_token_ids: list[int] | None = None
    token_ids: list[int] | None = None
    logprobs: list[float] | None = None
    token_texts: list[str] | None = None
    finish_reason: str | None = None
    version_runs: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    is_interrupted: bool = False
    stop_text: str | None = None
    message: Message = field(default_factory=Message)


@dataclass(slots=True)
class Completion:
    """The upstream's answer, as far as it has come. ``is_over``: it said so (``[DONE]``), whatever the choices say."""

    response_id: str | None = None
    model: str | None = None
    prompt_token_ids: list[int] | None = None
    choices: dict[int, Choice] = field(default_factory=dict[int, Choice])
    usage: dict[str, Any] | None = None
    created: int | None = None
    is_over: bool = False

    @property
    def first(self) -> Choice:
        """The choice that interfaces with a single one give to the agent."""
        return self.choices[min(self.choices)] if self.choices else Choice(0)

    @property
    def owes_halves(self) -> bool:
        """True if the last piece, of any choice, ended in half of a character."""
        return any(choice.message.ends_in_half for choice in self.choices.values())

    @property
    def is_interrupted(self) -> bool:
        """True if any choice is to be gone on with."""
        return any(choice.is_interrupted for choice in self.choices.values())

    def choice(self, index: int) -> Choice:
        """The choice of that index, made if it is new."""
        return self.choices.setdefault(index, Choice(index))


@dataclass(frozen=True, slots=True)
class RequestedExtras:
    """Extras that the agent itself asked for."""

    logprobs: bool
    token_ids: bool

    @property
    def everything(self) -> bool:
        """True if an answer can go to the agent as it is."""
        return self.logprobs and self.token_ids


def capture(completion: Completion, body: Any, *, is_whole: bool = False) -> list[tuple[int, Part]]:
    """Add the content of ``body``: an answer, or one chunk of a streamed one. Malformed parts are left out.

    Messages in ``body`` are mended in place, as :meth:`Message.add` does.

    Returns:
        What it adds, by choice.
    """
    if not isinstance(body, dict):
        return []
    completion.response_id = _text(body.get("id")) or completion.response_id
    completion.model = _text(body.get("model")) or completion.model
    if type(body.get("created")) is int:
        completion.created = body["created"]
    if completion.prompt_token_ids is None:
        completion.prompt_token_ids = _integers(_field(body, _PROMPT_IDS))
    if isinstance(body.get("usage"), dict):
        completion.usage = body["usage"]
    choices = body.get("choices")
    added: list[tuple[int, Part]] = []
    for position, entry in enumerate(choices if isinstance(choices, list) else []):
        if isinstance(entry, dict):
            index = entry.get("index")
            index = index if type(index) is int else position
            added += [(index, part) for part in _capture_choice(completion.choice(index), entry, is_whole=is_whole)]
    return added


def rest_of(completion: Completion) -> dict[str, Any] | None:
    """A chunk with the rest that an ended stream still owes: ``?`` for the half of a character that never came."""
    if not completion.owes_halves:
        return None
    owed = [choice.index for choice in completion.choices.values() if choice.message.ends_in_half]
    head = {"id": completion.response_id, "object": "chat.completion.chunk", "model": completion.model}
    choices: list[dict[str, Any]] = [{"index": index, "delta": {}, "finish_reason": None} for index in owed]
    return head | {"created": completion.created or 0, "choices": choices}


def without_extras(body: dict[str, Any], requested: RequestedExtras) -> None:
    """Remove, in place, the fields that only the proxy asked for."""
    choices = body.get("choices")
    entries: list[Any] = choices if isinstance(choices, list) else []
    for entry in entries:
        if isinstance(entry, dict):
            if not requested.logprobs and entry.get("logprobs") is not None:
                entry["logprobs"] = None
            if not requested.token_ids:
                _remove(entry, _RESPONSE_IDS)
                _remove(entry, _PROMPT_IDS)
                _remove(entry, _VERSION_RUNS)
    if not requested.token_ids:
        _remove(body, _PROMPT_IDS)


def with_provider_fields(body: dict[str, Any]) -> None:
    """Put token ids, in place, also where LiteLLM puts fields that OpenAI's answers do not have."""
    choices = body.get("choices")
    for entry in choices if isinstance(choices, list) else ():
        if isinstance(entry, dict) and _RESPONSE_IDS in entry:
            fields = entry.get(PROVIDER_FIELDS)
            entry[PROVIDER_FIELDS] = (fields or {}) | {_RESPONSE_IDS: entry[_RESPONSE_IDS]}


def policy_version_of(header: str | None, model: str | None) -> int | None:
    """The version that answered: from the header, else the ``@<number>`` at the end of the model's name."""
    version = version_of_text(header or "")
    return version_of_model(model) if version is None else version


def _capture_choice(choice: Choice, entry: dict[str, Any], *, is_whole: bool) -> list[Part]:
    reason = _finish_reason(entry.get("finish_reason"))
    choice.is_interrupted = reason == INTERRUPTED
    if reason and not choice.is_interrupted:
        choice.finish_reason = reason
    for name in _STOP_TEXTS:
        choice.stop_text = _text(entry.get(name)) or choice.stop_text
    choice.version_runs.extend(_version_runs(entry.get(_VERSION_RUNS)))
    if choice.prompt_token_ids is None:
        choice.prompt_token_ids = _integers(_field(entry, _PROMPT_IDS))
    choice.token_ids = _joined(choice.token_ids, _integers(_field(entry, _RESPONSE_IDS)))
    choice.logprobs = _joined(choice.logprobs, _logprobs(entry.get("logprobs")))
    choice.token_texts = _joined(choice.token_texts, _token_texts(entry.get("logprobs")))
    is_last = is_whole or choice.finish_reason is not None
    for name in ("delta", "message"):  # some servers stream messages
        if isinstance(entry.get(name), dict):
            parts = choice.message.add(entry[name], is_last=is_last)
            if is_whole:
                for call in entry[name].get("tool_calls") or ():
                    call.pop("index", None)  # which only pieces have
            return parts
    if isinstance(entry.get("text"), str):  # completions: whole and in pieces alike
        message = {"role": "assistant", "content": entry["text"]}
        parts = choice.message.add(message, is_last=is_last)
        entry["text"] = message["content"]
        return parts
    return []


_STOP_TEXTS = ("stop_reason", "matched_stop")
"""Of vLLM and SGLang, beside ``finish_reason``; a number is a token."""


def _finish_reason(value: Any) -> str | None:
    """SGLang's own interface has an object with a ``type``."""
    return _text(value.get("type")) if isinstance(value, dict) else _text(value)


def _field(body: dict[str, Any], name: str) -> Any:
    value = body.get(name)
    if value is None and isinstance(body.get(PROVIDER_FIELDS), dict):
        return body[PROVIDER_FIELDS].get(name)
    return value


def _remove(body: dict[str, Any], name: str) -> None:
    body.pop(name, None)
    if isinstance(body.get(PROVIDER_FIELDS), dict):
        body[PROVIDER_FIELDS].pop(name, None)


def _joined(known: list[Any] | None, new: list[Any] | None) -> list[Any] | None:
    if known is None or new is None:
        return new if known is None else known
    known.extend(new)
    return known


def _logprobs(value: Any) -> list[float] | None:
    if not isinstance(value, dict):
        return None
    entries = value.get("content", value.get("token_logprobs"))
    numbers: list[float] = []
    for entry in entries if isinstance(entries, list) else [None]:
        number = entry.get("logprob") if isinstance(entry, dict) else entry
        if not isinstance(number, (int, float)):
            return None
        numbers.append(number)
    return numbers


def _token_texts(value: Any) -> list[str] | None:
    if not isinstance(value, dict):
        return None
    entries = value.get("content", value.get("tokens"))
    texts: list[str] = []
    for entry in entries if isinstance(entries, list) else [None]:
        text = entry.get("token") if isinstance(entry, dict) else entry
        if not isinstance(text, str) or text.startswith(_ID_IN_PLACE_OF_TEXT):
            return None
        texts.append(text)
    return texts


def _version_runs(value: Any) -> list[tuple[int, int]]:
    runs = [(run.get("first_token"), run.get("policy_version")) for run in value or () if isinstance(run, dict)]
    return [(first, version) for first, version in runs if type(first) is int and type(version) is int]


def _integers(value: Any) -> list[int] | None:
    if not isinstance(value, list) or not all(type(item) is int for item in value):
        return None
    return value


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
