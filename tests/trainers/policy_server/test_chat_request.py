"""Requests: what is taken, and what is refused by name instead of being ignored."""

from __future__ import annotations

from typing import Any

import pytest

from lightstream.trainers.servers.chat_api.requests import RequestError, parse_chat_request

MESSAGES = [{"role": "user", "content": "hi"}]


def test_defaults_are_openai_s() -> None:
    request = parse_chat_request({"messages": MESSAGES})
    assert (request.model, request.tokens_max, request.temperature, request.top_p) == ("", None, 1.0, 1.0)
    assert (request.choices, request.seed, request.stops, request.streams) == (1, None, (), False)
    assert not request.logprobs
    assert not request.returns_token_ids


def test_max_completion_tokens_wins_over_max_tokens() -> None:
    assert parse_chat_request({"messages": MESSAGES, "max_tokens": 3}).tokens_max == 3
    both = {"messages": MESSAGES, "max_tokens": 3, "max_completion_tokens": 5}
    assert parse_chat_request(both).tokens_max == 5


@pytest.mark.parametrize("stop", ["a", ["a"], None])
def test_stop_is_a_text_or_several(stop: Any) -> None:
    assert parse_chat_request({"messages": MESSAGES, "stop": stop}).stops == (("a",) if stop else ())


@pytest.mark.parametrize(
    ("change", "parameter"),
    [
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": ["hi"]}, "messages"),
        ({"messages": [{"content": "no role"}]}, "messages"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages"),
        ({"model": 3}, "model"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_completion_tokens": "9"}, "max_completion_tokens"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"top_p": 0.9, "logprobs": True}, "top_p"),
        ({"n": 129}, "n"),
        ({"n": 1.5}, "n"),
        ({"seed": "x"}, "seed"),
        ({"stop": [""]}, "stop"),
        ({"stop": 5}, "stop"),
        ({"stop": ["a"] * 17}, "stop"),
        ({"stream": "yes"}, "stream"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"frequency_penalty": 0.5}, "frequency_penalty"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"tool_choice": "required"}, "tool_choice"),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(change: dict[str, Any], parameter: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_chat_request({"messages": MESSAGES} | change)
    assert caught.value.parameter == parameter
    assert parameter in caught.value.message
    assert caught.value.status == 400


@pytest.mark.parametrize("body", [None, [], "text", 4])
def test_a_body_that_is_no_object_is_refused(body: Any) -> None:
    with pytest.raises(RequestError, match="JSON object"):
        parse_chat_request(body)


def test_a_refusal_of_top_p_is_not_taken_for_one_of_log_probabilities() -> None:
    """The proxy asks again without those where a server's refusal names them."""
    with pytest.raises(RequestError) as caught:
        parse_chat_request({"messages": MESSAGES, "top_p": 0.9, "logprobs": True})
    assert "logprobs" not in caught.value.message
    assert parse_chat_request({"messages": MESSAGES, "top_p": 0.9}).top_p == 0.9
    assert parse_chat_request({"messages": MESSAGES, "top_p": 0.9, "temperature": 0, "logprobs": True}).logprobs


def test_parameters_that_ask_for_nothing_are_fine() -> None:
    neutral = {"frequency_penalty": 0, "top_k": -1, "logit_bias": {}, "response_format": {"type": "text"}}
    assert parse_chat_request({"messages": MESSAGES} | neutral).choices == 1
