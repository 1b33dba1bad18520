"""Microsoft's Agent Framework, which has its own instrumentation."""

from __future__ import annotations

import pytest
from agent_framework import Agent
from agent_framework.openai import OpenAIChatClient, OpenAIChatCompletionClient

from lightstream.producers import LitAgent, rollout
from lightstream.schemas.types import LLM
from tests.frameworks.harness import Arena
from tests.frameworks.model_server import CallTools, Say, ScriptedModel, in_turn


def weather(city: str) -> str:
    """The weather of a city."""
    return f"rain in {city}"


def agent_of(client_of: type) -> LitAgent:
    @rollout
    async def agent(task: str, llm: LLM) -> None:
        client = client_of(model=llm.model, base_url=llm.endpoint, api_key="none")
        said = await Agent(client=client, name="forecaster", tools=[weather]).run(task)
        assert said.text == "Rain in Bergen."

    return agent


@pytest.mark.parametrize("client_of", [OpenAIChatCompletionClient, OpenAIChatClient])
def test_an_agent(scripted: Arena, script: ScriptedModel, client_of: type) -> None:
    script.script = in_turn(CallTools.of("weather", city="Bergen"), Say("Rain in Bergen."))
    scripted.check(scripted.run(agent_of(client_of)), calls=2, agents=["forecaster", "forecaster"])
