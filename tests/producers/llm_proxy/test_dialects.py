"""Requests and answers of any shape: translated, or refused with a reason, never an accident."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightstream.producers.llm_proxy.capture import Completion, capture
from lightstream.producers.llm_proxy.dialects import ANTHROPIC_MESSAGES, Dialect, ResponsesDialect, StreamEvent
from tests.support.examples import examples

REQUEST: dict[str, Any] = {
    "model": "m",
    "max_tokens": 5,
    "messages": [{"role": "user", "content": "hi"}],
    "input": "hi",
}
NAMES = (
    "arguments call_id choices content delta finish_reason format function id image_url index input input_schema "
    "logprobs message model name output parameters role schema source text tool_calls tool_use_id tools type usage"
)
WORDS = "assistant base64 function image input_image input_text json_schema message stop text tool_result tool_use user"

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(WORDS.split()) | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(NAMES.split()), inner, max_size=5),
    max_leaves=12,
)

BOTH = pytest.mark.parametrize("dialect", [ANTHROPIC_MESSAGES, ResponsesDialect()], ids=["messages", "responses"])


@BOTH
@settings(max_examples=examples(150), deadline=None)  # the first example imports LiteLLM, which takes seconds
@given(changes=st.dictionaries(st.sampled_from([*REQUEST, "tools", "tool_choice", "system", "text"]), JSON))
def test_no_request_is_too_strange(dialect: Dialect, changes: dict[str, Any]) -> None:
    with contextlib.suppress(ValueError):
        translation = asyncio.run(dialect.translate(REQUEST | changes))
        assert isinstance(translation.request["messages"], list)


@BOTH
@settings(max_examples=examples(150), deadline=None)  # as above
@given(body=st.dictionaries(st.sampled_from(["choices", "usage", "id", "model", "created"]), JSON))
async def test_no_answer_is_too_strange(dialect: Dialect, body: dict[str, Any]) -> None:
    translation = await dialect.translate(dict(REQUEST))
    answer = Completion()
    capture(answer, body, is_whole=True)
    assert translation.whole(answer, body)


@BOTH
@settings(max_examples=examples(150), deadline=None)  # as above
@given(bodies=st.lists(st.dictionaries(st.sampled_from(["choices", "usage", "id", "model"]), JSON), max_size=3))
async def test_no_chunk_is_too_strange(dialect: Dialect, bodies: list[dict[str, Any]]) -> None:
    async def chunks() -> AsyncGenerator[StreamEvent]:
        for body in bodies:
            parts = [part for index, part in capture(answer, body) if index == answer.first.index]
            yield StreamEvent(b"", parts=parts)

    answer = Completion()
    translation = await dialect.translate(REQUEST | {"stream": True})
    async for event in translation.stream(answer, chunks()):
        assert event.startswith(b"event: ")
        assert event.endswith(b"\n\n")
