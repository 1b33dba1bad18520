"""Chat and text completion requests in OpenAI's shape, checked. Pure.

Unsupported parameters that would change the sampling are refused, never ignored. So is ``top_p`` where
log-probabilities are asked for: what is trained on must be sampled from the policy's own distribution.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from .tool_calls import parse_arguments

CHOICES_MAX = 128
STOPS_MAX = 16
TOP_LOGPROBS_MAX = 20
TEMPERATURE_MAX = 100.0
SEED_MAX = 2**63 - 1

SO_FAR = "answers_so_far"
"""A field of our own: the LLM proxy goes on with what an exchange of weights interrupted."""

_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "frequency_penalty": (0, None),
    "presence_penalty": (0, None),
    "repetition_penalty": (1, None),
    "logit_bias": ({}, None),
    "top_k": (0, -1, None),
    "min_p": (0, None),
    "functions": ([], None),
    "response_format": ({"type": "text"}, None),
    "tool_choice": ("auto", "none", None),
}
"""Parameters we do not support -> values that ask for nothing."""

_INSTEAD = {
    "functions": "use tools",
    "response_format": "ask for the format in the prompt and reward it, or put vLLM behind the proxy",
    "tool_choice": 'leave the choice to the model ("auto") and reward it, or put vLLM behind the proxy',
}
"""Advice where tokens would have to be forced: forced ones teach the policy nothing about its choice."""


class RequestError(Exception):
    """A request that cannot be served; ``status`` is the HTTP status, ``parameter`` the cause."""

    def __init__(self, message: str, *, parameter: str | None = None, status: int = 400, code: str | None = None):
        super().__init__(message)
        self.message = message
        self.parameter = parameter
        self.status = status
        self.code = code


@dataclass(frozen=True, slots=True)
class AnswerSoFar:
    """The state of one choice, where a request goes on with an interrupted answer.

    Attributes:
        token_ids: its tokens so far.
        text_length: characters of its text that the client has been sent.
        is_over: nothing is to be added.
    """

    token_ids: list[int]
    text_length: int
    is_over: bool


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A request for choices, checked.

    Attributes:
        model: ``policy`` (the newest version), ``policy@<version>``, or empty for the newest.
        messages: chat messages, as the tokenizer's chat template takes them; ``tools`` likewise, or ``None``.
        reads_tool_calls: tell calls of tools from text; only the first one, unless ``parallel_tool_calls``.
        tokens_max: most tokens per choice; ``None`` where the request does not say.
        temperature: 0 is greedy. top_p: nucleus mass in (0, 1].
        choices: number of independent samples (``n``).
        seed: same seed, weights and request give the same tokens; ``None`` draws new ones.
        stops: texts that end a choice and are cut from it.
        streams, includes_usage: server-sent events; with a last one that has the usage.
        logprobs, top_logprobs: report the log-probability of each token, and of that many best ones.
        returns_token_ids: add ``prompt_token_ids`` and ``token_ids`` as vLLM does.
        so_far: of each choice, where an interrupted answer is gone on with: only what is new is sent, but text, calls
            of tools and usage are those of the whole. Empty for a new answer.
    """

    model: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None
    reads_tool_calls: bool
    parallel_tool_calls: bool
    tokens_max: int | None
    temperature: float
    top_p: float
    choices: int
    seed: int | None
    stops: tuple[str, ...]
    streams: bool
    includes_usage: bool
    logprobs: bool
    top_logprobs: int
    returns_token_ids: bool
    so_far: tuple[AnswerSoFar, ...]


def parse_chat_request(body: object) -> ChatRequest:
    """Check the decoded JSON body of a request.

    Raises:
        RequestError: it is not an object, lacks messages, or a parameter has a value it cannot have.
    """
    if not isinstance(body, dict):
        raise RequestError(f"the body must be a JSON object, not {type(body).__name__}")
    values: dict[str, Any] = body
    for name, neutral in _NEUTRAL.items():
        if name in values and values[name] not in neutral:
            instead = f": {_INSTEAD[name]}" if name in _INSTEAD else ""
            raise RequestError(f"{name}={values[name]!r} is not supported here{instead}", parameter=name)
    tools = _tools(values)
    stream_options = values.get("stream_options")
    temperature = _number(values, "temperature", 1.0, 0.0, TEMPERATURE_MAX)
    top_p = _number(values, "top_p", 1.0, 1e-6, 1.0)
    if top_p < 1.0 and temperature > 0.0 and _flag(values, "logprobs"):
        raise RequestError(
            f"top_p={top_p} where log-probabilities are asked for: they would be of the cut distribution, which "
            "no update can reproduce. Leave top_p out of calls that are trained on",
            parameter="top_p",
        )
    tokens_name = "max_completion_tokens" if values.get("max_completion_tokens") is not None else "max_tokens"
    return ChatRequest(
        model=_text(values, "model"),
        messages=_messages(values),
        tools=tools,
        reads_tool_calls=tools is not None and values.get("tool_choice") != "none",
        parallel_tool_calls=values.get("parallel_tool_calls") is None or _flag(values, "parallel_tool_calls"),
        tokens_max=_integer(values, tokens_name, None, 1, 2**31 - 1),
        temperature=temperature,
        top_p=top_p,
        choices=_integer(values, "n", 1, 1, CHOICES_MAX) or 1,
        seed=_integer(values, "seed", None, -SEED_MAX, SEED_MAX),
        stops=_stops(values),
        streams=_flag(values, "stream"),
        includes_usage=isinstance(stream_options, dict) and stream_options.get("include_usage") is True,
        logprobs=_flag(values, "logprobs"),
        top_logprobs=_integer(values, "top_logprobs", 0, 0, TOP_LOGPROBS_MAX) or 0,
        returns_token_ids=_flag(values, "return_token_ids"),
        so_far=_so_far(values.get(SO_FAR)),
    )


def _messages(values: dict[str, Any]) -> list[dict[str, Any]]:
    messages = values.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RequestError("messages must be a list with at least one message", parameter="messages")
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise RequestError(f"messages[{index}] must be an object with a role", parameter="messages")
        message.setdefault("content", None)
        content = message["content"]
        parts: list[Any] = content if isinstance(content, list) else []
        if content is not None and not isinstance(content, (str, list)):
            raise RequestError(f"messages[{index}].content must be a string or a list of parts", parameter="messages")
        for part in parts:
            if not isinstance(part, dict) or not isinstance(part.get("text"), str):
                raise RequestError(f"messages[{index}].content: only text parts are supported", parameter="messages")
        if message.get("tool_calls") is not None:
            try:
                message["tool_calls"] = parse_arguments(message)
            except ValueError as error:
                raise RequestError(f"messages[{index}]: {error}", parameter="messages") from error
    return messages


def _so_far(value: Any) -> tuple[AnswerSoFar, ...]:
    try:
        so_far = tuple(AnswerSoFar(each["token_ids"], each["text_length"], each["is_over"]) for each in value or ())
        if all(_are_ids(each.token_ids) and type(each.text_length) is int for each in so_far):
            return so_far
    except (TypeError, KeyError):
        pass
    raise RequestError(f"{SO_FAR} must list token_ids, text_length and is_over of each choice", parameter=SO_FAR)


def _tools(values: dict[str, Any]) -> list[dict[str, Any]] | None:
    tools = values.get("tools")
    if tools is None or tools == []:
        return None
    if not isinstance(tools, list):
        raise RequestError("tools must be a list", parameter="tools")
    for index, tool in enumerate(tools):
        function: Any = tool.get("function") if isinstance(tool, dict) and tool.get("type") == "function" else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise RequestError(
                f"tools[{index}] must be an object of type function, with a function that has a name", parameter="tools"
            )
    return tools


def _stops(values: dict[str, Any]) -> tuple[str, ...]:
    stop = values.get("stop")
    stops: Any = [] if stop is None else [stop] if isinstance(stop, str) else stop
    if not isinstance(stops, list) or not all(isinstance(text, str) and text for text in stops):
        raise RequestError(f"stop must be a string or a list of strings, not {stop!r}", parameter="stop")
    if len(stops) > STOPS_MAX:
        raise RequestError(f"stop takes at most {STOPS_MAX} strings, got {len(stops)}", parameter="stop")
    return tuple(stops)


def _text(values: dict[str, Any], name: str) -> str:
    value = values.get(name) or ""
    if not isinstance(value, str):
        raise RequestError(f"{name} must be a string, not {value!r}", parameter=name)
    return value


def _flag(values: dict[str, Any], name: str) -> bool:
    value = values.get(name)
    if value is not None and not isinstance(value, bool):
        raise RequestError(f"{name} must be true or false, not {value!r}", parameter=name)
    return bool(value)


def _number(values: dict[str, Any], name: str, default: float, low: float, high: float) -> float:
    value = values.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise RequestError(f"{name} must be a number from {low:g} to {high:g}, not {value!r}", parameter=name)
    return float(value)


def _integer(values: dict[str, Any], name: str, default: int | None, low: int, high: int) -> int | None:
    value = values.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise RequestError(f"{name} must be an integer from {low} to {high}, not {value!r}", parameter=name)
    return value


Prompt = str | list[int]
"""Text, or token ids."""

_NEUTRAL_TEXT: dict[str, tuple[Any, ...]] = {"echo": (False, None), "suffix": ("", None), "best_of": (None,)}
"""Parameters we do not support -> values that ask for nothing."""


@dataclass(frozen=True, slots=True)
class TextRequest(ChatRequest):
    """A text completion request: ``choices`` for each prompt, ``messages`` and ``tools`` are empty."""

    prompts: tuple[Prompt, ...]


def parse_text_request(body: object) -> TextRequest:
    """Check the decoded JSON body of a request.

    Raises:
        RequestError: it is not an object, lacks a prompt, or a parameter has a value it cannot have.
    """
    if not isinstance(body, dict):
        raise RequestError(f"the body must be a JSON object, not {type(body).__name__}")
    values: dict[str, Any] = dict(body)
    for name, neutral in _NEUTRAL_TEXT.items():
        if name in values and values[name] not in neutral:
            raise RequestError(f"{name}={values[name]!r} is not supported here", parameter=name)
    prompts = _prompts(values.pop("prompt", None))
    best = values.pop("logprobs", None)
    if best is not None and type(best) is not int:
        raise RequestError(f"logprobs must be an integer, not {best!r}", parameter="logprobs")
    values |= {"logprobs": best is not None, "top_logprobs": best or 0, "tools": None}
    values["messages"] = [{"role": "user", "content": ""}]  # a chat request has some
    chat = parse_chat_request(values)
    if chat.choices * len(prompts) > CHOICES_MAX:
        message = f"{len(prompts)} prompts with n={chat.choices} are over {CHOICES_MAX} choices"
        raise RequestError(message, parameter="prompt")
    known: dict[str, Any] = {field.name: getattr(chat, field.name) for field in fields(chat)}
    known |= {"messages": [], "prompts": prompts}
    return TextRequest(**known)


def _prompts(value: Any) -> tuple[Prompt, ...]:
    prompts: Any = [value] if isinstance(value, str) or (value and _are_ids(value)) else value
    if isinstance(prompts, list) and prompts and all(p and (isinstance(p, str) or _are_ids(p)) for p in prompts):
        return tuple(prompts)
    raise RequestError("prompt must be a string, a list of token ids, or a list of these", parameter="prompt")


def _are_ids(value: object) -> bool:
    return isinstance(value, list) and all(type(token) is int and token >= 0 for token in value)
