"""Haystack's agent."""

from __future__ import annotations

from typing import Annotated

from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import tool
from haystack.utils import Secret

from lightstream.producers import rollout
from lightstream.schemas.types import LLM
from tests.frameworks.harness import Arena
from tests.frameworks.model_server import CallTools, Say, ScriptedModel, in_turn


@tool
def weather(city: Annotated[str, "which one"]) -> str:
    """The weather of a city."""
    return f"rain in {city}"


@rollout
def agent(task: str, llm: LLM) -> None:
    model = OpenAIChatGenerator(model=llm.model, api_base_url=llm.endpoint, api_key=Secret.from_token("none"))
    said = Agent(chat_generator=model, tools=[weather]).run(messages=[ChatMessage.from_user(task)])
    assert said["messages"][-1].text == "Rain in Bergen."


def test_an_agent(scripted: Arena, script: ScriptedModel) -> None:
    script.script = in_turn(CallTools.of("weather", city="Bergen"), Say("Rain in Bergen."))
    scripted.check(scripted.run(agent), calls=2)
