"""Strands, which has its own instrumentation and always streams."""

from __future__ import annotations

from strands import Agent, tool
from strands.models.openai import OpenAIModel

from lightstream.producers import rollout
from lightstream.schemas.types import LLM
from tests.frameworks.harness import Arena
from tests.frameworks.model_server import CallTools, Say, ScriptedModel, in_turn


@tool
def weather(city: str) -> str:
    """The weather of a city.

    Args:
        city: which one.
    """
    return f"rain in {city}"


@rollout
async def agent(task: str, llm: LLM) -> None:
    model = OpenAIModel(client_args={"base_url": llm.endpoint, "api_key": "none"}, model_id=llm.model)
    said = await Agent(model=model, name="forecaster", tools=[weather], callback_handler=None).invoke_async(task)
    assert str(said).strip() == "Rain in Bergen."


def test_an_agent(scripted: Arena, script: ScriptedModel) -> None:
    script.script = in_turn(CallTools.of("weather", city="Bergen"), Say("Rain in Bergen."))
    scripted.check(scripted.run(agent), calls=2, agents=["forecaster", "forecaster"])
