"""Anthropic's SDK: messages, streams, tools, and what Claude Code adds to them."""

from __future__ import annotations

import asyncio
from typing import Any

import anthropic

from lightstream.producers import rollout
from lightstream.schemas.types import LLM
from tests.frameworks.harness import Arena
from tests.frameworks.model_server import CallTools, Say, ScriptedModel, in_turn

TOOL: Any = {
    "name": "weather",
    "description": "the weather of a city",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def client_of(llm: LLM) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=llm.endpoint, api_key="none", max_retries=0)


@rollout
async def messages(task: str, llm: LLM) -> None:
    asked: Any = {"model": llm.model, "max_tokens": 8, "messages": [{"role": "user", "content": task}]}
    async with client_of(llm) as client:
        await client.messages.create(**asked)
        async with client.messages.stream(**asked) as stream:
            await stream.get_final_message()
        await asyncio.gather(*(client.messages.create(**asked) for _ in range(2)))


def test_calls_of_the_policy(real: Arena) -> None:
    real.check(real.run(messages), calls=4)


@rollout
async def with_tools(task: str, llm: LLM) -> None:
    said: Any = [{"role": "user", "content": task}]
    asked: Any = {"model": llm.model, "max_tokens": 99, "tools": [TOOL], "system": "You forecast."}
    async with client_of(llm) as client:
        answer = await client.messages.create(messages=said, **asked)
        uses = [block for block in answer.content if block.type == "tool_use"]
        assert [use.input for use in uses] == [{"city": "Bergen"}, {"city": "Voss"}]
        results = [{"type": "tool_result", "tool_use_id": use.id, "content": "rain"} for use in uses]
        said += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": results}]
        async with client.messages.stream(messages=said, **asked) as stream:
            assert await stream.get_final_text() == "Rain in both."


def test_two_tools_at_once(scripted: Arena, script: ScriptedModel) -> None:
    both = CallTools((("weather", {"city": "Bergen"}), ("weather", {"city": "Voss"})))
    script.script = in_turn(both, Say("Rain in both."))
    scripted.check(scripted.run(with_tools), calls=2)


@rollout
async def as_claude_code_asks(task: str, llm: LLM) -> None:
    """Beta headers, caching, thinking in the history, many tools; always a stream, after its tokens were counted."""
    tools: Any = [TOOL | {"name": f"tool_{number}", "input_schema": TOOL["input_schema"]} for number in range(24)]
    system: Any = [{"type": "text", "text": "You forecast.", "cache_control": {"type": "ephemeral"}}]
    thought = {"type": "thinking", "thinking": "Which city?", "signature": "c2lnbmVk"}
    said: Any = [
        {"role": "user", "content": [{"type": "text", "text": task, "cache_control": {"type": "ephemeral"}}]},
        {"role": "assistant", "content": [thought, {"type": "text", "text": "Bergen, I take it."}]},
        {"role": "user", "content": [{"type": "text", "text": "Yes."}]},
    ]
    asked: Any = {"model": llm.model, "messages": said, "tools": tools, "system": system}
    betas: Any = ["claude-code-20250219", "interleaved-thinking-2025-05-14"]
    async with client_of(llm) as client:
        await client.beta.messages.count_tokens(betas=betas, **asked)
        options: Any = {"betas": betas, "thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 4096}
        async with client.beta.messages.stream(**asked, **options) as stream:
            final = await stream.get_final_message()
        assert [block.text for block in final.content if block.type == "text"] == ["It rains in Bergen."]


def test_what_claude_code_asks(scripted: Arena) -> None:
    scripted.check(scripted.run(as_claude_code_asks), calls=1)
