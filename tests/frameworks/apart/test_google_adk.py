"""Google's Agent Development Kit, by LiteLLM: an agent that hands over to another, which calls a tool."""

from __future__ import annotations

from google.adk.agents import LlmAgent
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.genai import types

from lightstream.producers import rollout
from lightstream.schemas.types import LLM
from tests.frameworks.harness import Arena
from tests.frameworks.model_server import CallTools, Say, ScriptedModel


def weather(city: str) -> str:
    """The weather of a city."""
    return f"rain in {city}"


def answer(request: dict[str, object]) -> Say | CallTools:
    said = str(request["messages"])
    if "rain in Bergen" in said:
        return Say("Rain in Bergen.")
    if "transfer_to_agent" in str(request.get("tools")) and "of the west" not in said:
        return CallTools.of("transfer_to_agent", agent_name="forecaster")
    return CallTools.of("weather", city="Bergen")


@rollout
async def agent(task: str, llm: LLM) -> None:
    model = LiteLlm(model=f"openai/{llm.model}", api_base=llm.endpoint, api_key="none")
    forecaster = LlmAgent(
        name="forecaster", description="forecasts", instruction="You are of the west.", model=model, tools=[weather]
    )
    triage = LlmAgent(name="triage", instruction="Hand over.", model=model, sub_agents=[forecaster])
    runner = InMemoryRunner(agent=triage, app_name="weather")
    session = await runner.session_service.create_session(app_name="weather", user_id="u")
    message = types.Content(role="user", parts=[types.Part(text=task)])
    said = [event async for event in runner.run_async(user_id="u", session_id=session.id, new_message=message)]
    assert said[-1].content is not None
    assert said[-1].content.parts[0].text == "Rain in Bergen."


def test_a_transfer_and_a_tool(scripted: Arena, script: ScriptedModel) -> None:
    script.script = answer
    scripted.check(scripted.run(agent), calls=3, agents=["triage", "forecaster", "forecaster"])
