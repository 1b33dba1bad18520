"""Agno's agent."""

from __future__ import annotations

from agno.agent import Agent
from agno.models.openai.like import OpenAILike

from lightstream.producers import rollout
from lightstream.schemas.types import LLM
from tests.frameworks.harness import Arena
from tests.frameworks.model_server import CallTools, Say, ScriptedModel, in_turn


def weather(city: str) -> str:
    """The weather of a city."""
    return f"rain in {city}"


@rollout
async def agent(task: str, llm: LLM) -> None:
    model = OpenAILike(id=llm.model, base_url=llm.endpoint, api_key="none", max_retries=0)
    said = await Agent(name="forecaster", model=model, tools=[weather], telemetry=False).arun(task)
    assert said.content == "Rain in Bergen."


def test_an_agent(scripted: Arena, script: ScriptedModel) -> None:
    script.script = in_turn(CallTools.of("weather", city="Bergen"), Say("Rain in Bergen."))
    scripted.check(scripted.run(agent), calls=2, agents=["forecaster", "forecaster"])
