"""OpenAI's SDK: chat, responses, streams, tools, parallel calls."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest

from lightstream.producers import operation, rollout
from lightstream.schemas.types import LLM
from tests.frameworks.harness import Arena
from tests.frameworks.model_server import CallTools, Say, ScriptedModel, in_turn

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CHAT_TOOL: Any = {"type": "function", "function": {"name": "weather", "parameters": CITY}}
RESPONSES_TOOL: Any = {"type": "function", "name": "weather", "parameters": CITY, "strict": False}


def weather(arguments: str) -> str:
    return f"rain in {json.loads(arguments)['city']}"


def client_of(llm: LLM) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=llm.endpoint, api_key="none", max_retries=0)


@rollout
async def chats(task: str, llm: LLM) -> None:
    """Whole, in pieces, twice at once, and two choices of one call."""
    messages: Any = [{"role": "user", "content": task}]
    async with client_of(llm) as client:
        create = client.chat.completions.create
        await create(model=llm.model, messages=messages, max_tokens=8)
        stream = await create(model=llm.model, messages=messages, max_tokens=8, stream=True)
        assert [piece async for piece in stream]
        await asyncio.gather(*(create(model=llm.model, messages=messages, max_tokens=8) for _ in range(2)))


@rollout
async def responses(task: str, llm: LLM) -> None:
    async with client_of(llm) as client:
        create = client.responses.create
        await create(model=llm.model, input=task, max_output_tokens=8)
        stream = await create(model=llm.model, input=task, max_output_tokens=8, stream=True)
        assert [event async for event in stream]
        await asyncio.gather(*(create(model=llm.model, input=task, max_output_tokens=8) for _ in range(2)))


@rollout
async def completions(task: str, llm: LLM) -> None:
    async with client_of(llm) as client:
        create = client.completions.create
        await create(model=llm.model, prompt=task, max_tokens=8)
        stream = await create(model=llm.model, prompt=task, max_tokens=8, stream=True)
        assert [piece async for piece in stream]
        await asyncio.gather(*(create(model=llm.model, prompt=task, max_tokens=8) for _ in range(2)))


@pytest.mark.parametrize("agent", [chats, responses, completions])
def test_calls_of_the_policy(real: Arena, agent: Any) -> None:
    real.check(real.run(agent), calls=4)


@rollout
def chat_with_tools(task: str, llm: LLM) -> None:
    """A synchronous agent; two tools are called at once, and the second answer comes in pieces."""
    client = openai.OpenAI(base_url=llm.endpoint, api_key="none", max_retries=0)
    messages: Any = [{"role": "user", "content": task}]
    with operation():
        answer = client.chat.completions.create(model=llm.model, messages=messages, tools=[CHAT_TOOL])
        message = answer.choices[0].message
        assert message.tool_calls is not None
        assert len(message.tool_calls) == 2
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls:
            assert call.type == "function"
            content = weather(call.function.arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": content})
        with client.chat.completions.stream(model=llm.model, messages=messages, tools=[CHAT_TOOL]) as stream:
            assert stream.get_final_completion().choices[0].message.content == "Rain in both."


@rollout
async def responses_with_tools(task: str, llm: LLM) -> None:
    """The conversation is the agent's to keep."""
    async with client_of(llm) as client:
        items: Any = [{"role": "user", "content": task}]
        answer = await client.responses.create(model=llm.model, input=items, tools=[RESPONSES_TOOL])
        calls = [item for item in answer.output if item.type == "function_call"]
        assert len(calls) == 2
        items += [item.model_dump(exclude_none=True) for item in answer.output]
        for call in calls:
            output = weather(call.arguments)
            items.append({"type": "function_call_output", "call_id": call.call_id, "output": output})
        async with client.responses.stream(model=llm.model, input=items, tools=[RESPONSES_TOOL]) as stream:
            final = await stream.get_final_response()
        assert final.output_text == "Rain in both."


@pytest.mark.parametrize("agent", [chat_with_tools, responses_with_tools])
def test_two_tools_at_once(scripted: Arena, script: ScriptedModel, agent: Any) -> None:
    both = CallTools((("weather", {"city": "Bergen"}), ("weather", {"city": "Voss"})))
    script.script = in_turn(both, Say("Rain in both."))
    scripted.check(scripted.run(agent), calls=2)


@rollout
async def several_choices(task: str, llm: LLM) -> None:
    async with client_of(llm) as client:
        messages: Any = [{"role": "user", "content": task}]
        answer = await client.chat.completions.create(model=llm.model, messages=messages, n=3)
        assert len(answer.choices) == 3


def test_several_choices_of_one_call(scripted: Arena) -> None:
    scripted.check(scripted.run(several_choices), calls=1, choices=3)
