"""The OpenAI Agents SDK: tools and handoffs, over chat completions and over responses."""

from __future__ import annotations

from typing import Any

import pytest
from agents import Agent, Model, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool
from openai import AsyncOpenAI

from lightstream.producers import LitAgent, rollout
from lightstream.schemas.types import LLM
from tests.frameworks.harness import Arena
from tests.frameworks.model_server import CallTools, Say, ScriptedModel, in_turn


@function_tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"rain in {city}"


def agent_of(interface: str, *, streams: bool, kept: bool = False) -> LitAgent[Any]:
    @rollout
    async def agent(task: str, llm: LLM) -> None:
        client = AsyncOpenAI(base_url=llm.endpoint, api_key="none", max_retries=0)
        model: Model = (
            OpenAIChatCompletionsModel(llm.model, client)
            if interface == "chat"
            else OpenAIResponsesModel(llm.model, client)
        )
        forecaster = Agent(name="forecaster", model=model, tools=[weather])
        triage = Agent(name="triage", model=model, handoffs=[forecaster])
        if streams:
            streamed = Runner.run_streamed(triage, task, auto_previous_response_id=kept)
            assert [event async for event in streamed.stream_events()]
            said = streamed.final_output
        else:
            said = (await Runner.run(triage, task, auto_previous_response_id=kept)).final_output
        assert said == "Rain in Bergen."
        await client.close()

    return agent


HANDOFF = in_turn(
    CallTools.of("transfer_to_forecaster"), CallTools.of("weather", city="Bergen"), Say("Rain in Bergen.")
)


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("interface", ["chat", "responses"])
def test_a_handoff_and_a_tool(scripted: Arena, script: ScriptedModel, interface: str, streams: bool) -> None:
    script.script = HANDOFF
    seen = scripted.run(agent_of(interface, streams=streams))
    scripted.check(seen, calls=3, agents=["triage", "forecaster", "forecaster"])


def test_a_conversation_that_the_server_keeps(scripted: Arena, script: ScriptedModel) -> None:
    """Each request sends what is new, and the id of the response before it."""
    script.script = HANDOFF
    seen = scripted.run(agent_of("responses", streams=True, kept=True))
    scripted.check(seen, calls=3, agents=["triage", "forecaster", "forecaster"])


@rollout
async def asks_once(task: str, llm: LLM) -> None:
    client = AsyncOpenAI(base_url=llm.endpoint, api_key="none", max_retries=0)
    for model in (OpenAIChatCompletionsModel(llm.model, client), OpenAIResponsesModel(llm.model, client)):
        await Runner.run(Agent(name="speaker", model=model), task)
    await client.close()


def test_calls_of_the_policy(real: Arena) -> None:
    real.check(real.run(asks_once), calls=2, agents=["speaker", "speaker"])
