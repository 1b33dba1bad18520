"""CrewAI: a crew of two agents, one of which calls a tool."""

from __future__ import annotations

import crewai
from crewai import Agent, Crew, Task
from crewai.tools import tool

from lightstream.producers import rollout
from lightstream.schemas.types import LLM
from tests.frameworks.harness import Arena
from tests.frameworks.model_server import CallTools, Say, ScriptedModel


@tool("weather")
def weather(city: str) -> str:
    """The weather of a city."""
    return f"rain in {city}"


def answer(request: dict[str, object]) -> Say | CallTools:
    messages = request["messages"]
    assert isinstance(messages, list)
    if request.get("tools") and not any(message["role"] == "tool" for message in messages):
        return CallTools.of("weather", city="Bergen")
    return Say("Thought: I now can give a great answer\nFinal Answer: Rain in Bergen.")


@rollout
def crew(task: str, llm: LLM) -> None:
    model = crewai.LLM(model=f"openai/{llm.model}", base_url=llm.endpoint, api_key="none")
    forecaster = Agent(role="forecaster", goal="forecast", backstory="of the west", llm=model, tools=[weather])
    writer = Agent(role="writer", goal="write", backstory="of letters", llm=model)
    tasks = [
        Task(description=task, expected_output="the weather", agent=forecaster),
        Task(description=f"Write it down: {task}", expected_output="a letter", agent=writer),
    ]
    said = Crew(agents=[forecaster, writer], tasks=tasks).kickoff()
    assert "Rain in Bergen." in said.raw


def test_a_crew_of_two(scripted: Arena, script: ScriptedModel) -> None:
    script.script = answer
    scripted.check(scripted.run(crew), calls=3, agents=["forecaster", "forecaster", "writer"])
