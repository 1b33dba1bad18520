"""Pydantic AI, which has its own instrumentation."""

from __future__ import annotations

from typing import Any

import pytest
from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from lightstream.producers import LitAgent, rollout
from lightstream.schemas.types import LLM
from tests.frameworks.harness import Arena
from tests.frameworks.model_server import CallTools, Say, ScriptedModel, in_turn


def weather(city: str) -> str:
    """The weather of a city."""
    return f"rain in {city}"


def agent_of(interface: type[Any], *, streams: bool) -> LitAgent[Any]:
    @rollout
    async def agent(task: str, llm: LLM) -> None:
        client = AsyncOpenAI(base_url=llm.endpoint, api_key="none", max_retries=0)
        model = interface(llm.model, provider=OpenAIProvider(openai_client=client))
        forecaster = Agent(model, name="forecaster", tools=[weather])
        if streams:
            async with forecaster.run_stream(task) as streamed:
                said = await streamed.get_output()
        else:
            said = (await forecaster.run(task)).output
        assert said == "Rain in both."
        await client.close()

    return agent


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("interface", [OpenAIChatModel, OpenAIResponsesModel])
def test_two_tools_at_once(scripted: Arena, script: ScriptedModel, interface: type[Any], streams: bool) -> None:
    both = CallTools((("weather", {"city": "Bergen"}), ("weather", {"city": "Voss"})))
    script.script = in_turn(both, Say("Rain in both."))
    seen = scripted.run(agent_of(interface, streams=streams))
    scripted.check(seen, calls=2, agents=["forecaster", "forecaster"])
