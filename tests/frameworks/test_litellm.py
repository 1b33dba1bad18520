"""LiteLLM's SDK, with each of the prefixes by which it knows such servers."""

from __future__ import annotations

from typing import Any

import litellm
import pytest

from lightstream.producers import LitAgent, rollout
from lightstream.schemas.types import LLM
from tests.frameworks.harness import Arena
from tests.frameworks.model_server import CallTools, Say, ScriptedModel, in_turn

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL: Any = {"type": "function", "function": {"name": "weather", "parameters": CITY}}


def agent_of(provider: str) -> LitAgent[Any]:
    @rollout
    async def agent(task: str, llm: LLM) -> None:
        asked: Any = {"model": f"{provider}/{llm.model}", "api_base": llm.endpoint, "api_key": "none", "max_tokens": 8}
        asked["temperature"] = 0  # its spans join by their words, which a random answer may lack
        messages: Any = [{"role": "user", "content": task}]
        await litellm.acompletion(messages=messages, **asked)
        stream: Any = await litellm.acompletion(messages=messages, stream=True, **asked)
        assert [piece async for piece in stream]

    return agent


@pytest.mark.parametrize("provider", ["openai", "hosted_vllm"])
def test_calls_of_the_policy(real: Arena, provider: str) -> None:
    real.check(real.run(agent_of(provider)), calls=2)


@rollout
def with_tools(task: str, llm: LLM) -> None:
    asked: Any = {"model": f"openai/{llm.model}", "api_base": llm.endpoint, "api_key": "none", "tools": [TOOL]}
    messages: Any = [{"role": "user", "content": task}]
    answer: Any = litellm.completion(messages=messages, **asked)
    message = answer.choices[0].message
    messages.append(message.model_dump(exclude_none=True))
    messages += [{"role": "tool", "tool_call_id": call.id, "content": "rain"} for call in message.tool_calls]
    pieces: Any = litellm.completion(messages=messages, stream=True, **asked)
    text = "".join(piece.choices[0].delta.content or "" for piece in pieces)
    assert text == "Rain in both."


def test_two_tools_at_once(scripted: Arena, script: ScriptedModel) -> None:
    both = CallTools((("weather", {"city": "Bergen"}), ("weather", {"city": "Voss"})))
    script.script = in_turn(both, Say("Rain in both."))
    scripted.check(scripted.run(with_tools), calls=2)


@rollout
async def responses(task: str, llm: LLM) -> None:
    await litellm.aresponses(input=task, model=f"openai/{llm.model}", api_base=llm.endpoint, api_key="none")


def test_responses(scripted: Arena) -> None:
    scripted.check(scripted.run(responses), calls=1)
