"""Selects the requests that are answered token by token, so that an exchange of weights need not wait for them. Pure.

The tokens of these become text, calls of tools and log-probabilities here, as at the policy server. Whatever only vLLM
can make of tokens (forced formats, images, parsers of its own) leaves a request to vLLM.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic_core import from_json

from ..chat_api.requests import ChatRequest, RequestError, parse_chat_request, parse_text_request

_CHECKED = {
    *("model", "max_tokens", "max_completion_tokens", "temperature", "top_p", "n", "seed", "stop", "stream"),
    *("stream_options", "logprobs", "return_token_ids", "user", "metadata", "store", "frequency_penalty"),
    *("presence_penalty", "repetition_penalty", "logit_bias", "top_k", "min_p", "response_format"),
}
"""Fields that the policy server reads, or refuses where they ask for something, or that change nothing."""

_CHECKED_CHAT = _CHECKED | {"messages", "tools", "tool_choice", "parallel_tool_calls", "top_logprobs", "functions"}
_CHECKED_TEXT = _CHECKED | {"prompt", "echo", "suffix", "best_of"}

OUR_TOOL_PARSER = "hermes"
"""The form of calls that is read here, too."""


def parse_token_request(path: str, content: bytes, arguments: Sequence[str]) -> ChatRequest | None:
    """The request, or ``None`` if it is vLLM's to answer.

    Args:
        path: of the interface, ``/v1/chat/completions`` or ``/v1/completions``.
        content: its body, a JSON object.
        arguments: vLLM's, of its command line.
    """
    body = from_json(content)  # of its own: parsing changes messages
    is_chat = path.endswith("/chat/completions")
    options = body.get("stream_options")
    if not body.keys() <= (_CHECKED_CHAT if is_chat else _CHECKED_TEXT):
        return None
    if isinstance(options, dict) and not options.keys() <= {"include_usage"}:
        return None
    try:
        request = parse_chat_request(body) if is_chat else parse_text_request(body)
    except RequestError:
        return None
    if is_chat and _value(arguments, "--reasoning-parser"):
        return None
    reads_calls = (
        "--enable-auto-tool-choice" in arguments and _value(arguments, "--tool-call-parser") == OUR_TOOL_PARSER
    )
    return None if request.tools and not reads_calls else request


def _value(arguments: Sequence[str], name: str) -> str | None:
    """The value of an option, as ``name value`` or ``name=value``."""
    for place, argument in enumerate(arguments):
        if argument == name:
            return arguments[place + 1] if place + 1 < len(arguments) else None
        if argument.startswith(f"{name}="):
            return argument.partition("=")[2]
    return None
