"""A conversation by a chat template: each message of the assistant with its context, checked for losses.

A template may leave out what it does not know (tools, a system message, reasoning), or write it in another form than
the model was made with: OpenAI has the arguments of a tool's call as JSON text, and most templates want them parsed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeAlias, cast

from jinja2 import TemplateError

Message: TypeAlias = Mapping[str, Any]


class LossError(Exception):
    """A template refuses a message, or something of it would be lost or learned in a wrong form."""


@dataclass(frozen=True, slots=True)
class Call:
    """A message of the assistant: token ids of the prompt and of the learned part."""

    prompt: list[int]
    response: list[int]


def calls_of(messages: Sequence[Message], tools: Any, tokenizer: Any) -> list[Call]:
    """The messages of the assistant, in order; messages of ``weight`` 0 (OpenAI's) are left out.

    Raises:
        LossError: the template refuses a message, leaves out something of it, writes it in a form of Python's, or does
            not put it behind those before it. Says which message.
        KeyError, TypeError, AttributeError: these are no messages.
    """
    calls: list[Call] = []
    for place, message in enumerate(messages):
        if message["role"] == "assistant" and message.get("weight") != 0:
            calls.append(_call(messages[: place + 1], tools, tokenizer))
    return calls


def _call(messages: Sequence[Message], tools: Any, tokenizer: Any) -> Call:
    """The last message, in the first form of the conversation of which the template loses nothing."""
    problems: list[str] = []
    for parses, flattens in product((True, False), (False, True)):
        rendered = [_in_form(message, parses=parses, flattens=flattens) for message in messages]
        try:
            prompt, whole = (
                _text(some, tools, tokenizer, asks=asks) for some, asks in ((rendered[:-1], True), (rendered, False))
            )
        except (TemplateError, TypeError, ValueError, KeyError, AttributeError) as error:
            problems.append(f"the chat template refuses it: {type(error).__name__}: {error}")
            continue
        if not whole.startswith(prompt):
            problems.append("the chat template does not put it behind those before it")
            continue
        lost = _lost(messages, tools, prompt, whole[len(prompt) :])
        if lost is None:
            ids, before = (_ids(text, tokenizer) for text in (whole, prompt))
            if ids[: len(before)] != before:
                raise LossError(f"message {len(messages) - 1}: its first token joins earlier ones")
            return Call(before, ids[len(before) :])
        problems.append(lost)
    raise LossError(f"message {len(messages) - 1} ({messages[-1]['role']}): {problems[0]}")


def _text(messages: Sequence[Message], tools: Any, tokenizer: Any, *, asks: bool) -> str:
    text: str = tokenizer.apply_chat_template(messages, tools=tools, add_generation_prompt=asks, tokenize=False)
    return text


def _ids(text: str, tokenizer: Any) -> list[int]:
    """As ``apply_chat_template`` has them: the template writes the special tokens itself."""
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _in_form(message: Message, *, parses: bool, flattens: bool) -> dict[str, Any]:
    """A copy of a message with parsed arguments, or text in place of parts of text and of ``None``."""
    rendered = dict(message)
    if parses and rendered.get("tool_calls"):
        rendered["tool_calls"] = [_parsed(call) for call in rendered["tool_calls"]]
    if flattens:
        content = rendered.get("content")
        if content is None:
            rendered["content"] = ""
        elif not isinstance(content, str) and all(part.get("type") == "text" for part in content):
            rendered["content"] = "".join(_texts(content))
    return rendered


def _parsed(call: Mapping[str, Any]) -> dict[str, Any]:
    function = dict(call["function"])
    function["arguments"] = _value(function.get("arguments"))
    return {**call, "function": function}


def _value(arguments: Any) -> Any:
    """The value of JSON text; other text, and what is parsed, as it is."""
    try:
        return json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return arguments


def _lost(messages: Sequence[Message], tools: Any, prompt: str, learned: str) -> str | None:
    """What is not in the texts, or not as it should be; ``None``: nothing.

    Reasoning of earlier messages may be missing: many templates leave it out on purpose.
    """
    before = _bare(prompt)
    for tool in tools or ():
        name = str((tool.get("function") or tool).get("name", ""))
        if _bare(name) not in before:
            return f"the chat template leaves out the tools, {name!r} for one"
    for place, message in enumerate(messages[:-1]):
        if message["role"] == "assistant":
            continue
        for text in _texts(message.get("content")):
            if _bare(text) not in before:
                return f"the chat template leaves out message {place} ({message['role']}), {text!r:.60}"
        if _as_python(message.get("content")) in before:
            return f"the chat template writes the parts of message {place} as Python does"
    return _lost_of_answer(messages[-1], learned)


def _lost_of_answer(message: Message, learned: str) -> str | None:
    bare = _bare(learned)
    wanted = [("content", text) for text in _texts(message.get("content"))]
    wanted += [(key, message[key]) for key in ("reasoning_content", "reasoning", "refusal") if message.get(key)]
    calls: list[Any] = [call["function"] for call in message.get("tool_calls") or ()]
    if message.get("function_call"):
        calls.append(message["function_call"])
    wanted += [("a call's name", str(function["name"])) for function in calls]
    for what, text in wanted:
        if _bare(str(text)) not in bare:
            return f"the chat template leaves out {what}, {text!r:.60}"
    content = message.get("content")
    if _as_python(content) in bare:
        return "the chat template writes the parts of its content as Python does"
    if content is None and "None" in learned and "None" not in json.dumps(calls, default=str):
        return "the chat template writes None where it has no content"
    return next((lost for function in calls if (lost := _lost_arguments(function.get("arguments"), learned))), None)


def _lost_arguments(given: Any, learned: str) -> str | None:
    """The same of a call's arguments: as JSON, or each name and value in a form of the template's (XML, say)."""
    value, bare = _value(given), _bare(learned)
    as_json = [
        _bare(json.dumps(value, ensure_ascii=escapes, sort_keys=ordered))
        for escapes in (False, True)
        for ordered in (False, True)
    ]
    if any(text in bare for text in as_json) or (isinstance(value, str) and _bare(value) in bare):
        return None
    if not isinstance(value, str) and _bare(repr(value)) in bare:
        return "the chat template writes the arguments of its call as Python does, not as JSON"
    if any(_bare(json.dumps(text))[1:-1] in bare for text in as_json if '"' in text):
        return "the chat template writes the arguments of its call as text within text"
    for part in _parts(value):
        if _bare(part) not in bare and _bare(json.dumps(part))[1:-1] not in bare:
            return f"the chat template leaves out {part!r:.60} of the arguments of its call"
    return None


def _parts(value: Any) -> Iterator[str]:
    """The names and values of JSON, as text."""
    if isinstance(value, dict):
        for key, item in cast("dict[str, Any]", value).items():
            yield key
            yield from _parts(item)
    elif isinstance(value, list):
        items: list[Any] = value
        for item in items:
            yield from _parts(item)
    elif value is not None and not isinstance(value, bool):  # those have other names in other languages
        yield value if isinstance(value, str) else json.dumps(value)


def _as_python(content: Any) -> str:
    """The parts of a content as ``str`` writes them; of text, what no text has."""
    return _bare(repr(content)) if isinstance(content, list) else " "


def _texts(content: Any) -> list[str]:
    """The texts of a message's content."""
    if isinstance(content, list):
        return [part["text"] for part in cast("list[dict[str, Any]]", content) if part.get("text")]
    return [content] if content else []


def _bare(text: str) -> str:
    """Text without spaces: templates trim, and put their own between parts."""
    return "".join(text.split())
