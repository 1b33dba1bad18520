"""AutoGen: an agent with a tool, and two agents that take turns."""

from __future__ import annotations

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.models import ModelFamily, ModelInfo
from autogen_ext.models.openai import OpenAIChatCompletionClient

from lightstream.producers import rollout
from lightstream.schemas.types import LLM
from tests.frameworks.harness import Arena
from tests.frameworks.model_server import CallTools, Say, ScriptedModel, in_turn


def client_of(llm: LLM, **options: object) -> OpenAIChatCompletionClient:
    info = ModelInfo(
        vision=False, function_calling=True, json_output=False, family=ModelFamily.UNKNOWN, structured_output=False
    )
    return OpenAIChatCompletionClient(
        model=llm.model, base_url=llm.endpoint, api_key="none", model_info=info, max_retries=0, **options
    )


async def weather(city: str) -> str:
    """The weather of a city."""
    return f"rain in {city}"


@rollout
async def with_a_tool(task: str, llm: LLM) -> None:
    client = client_of(llm)
    agent = AssistantAgent("forecaster", client, tools=[weather], reflect_on_tool_use=True)
    said = await agent.run(task=task)
    assert said.messages[-1].to_text() == "Rain in both."
    await client.close()


def test_two_tools_at_once(scripted: Arena, script: ScriptedModel) -> None:
    both = CallTools((("weather", {"city": "Bergen"}), ("weather", {"city": "Voss"})))
    script.script = in_turn(both, Say("Rain in both."))
    scripted.check(scripted.run(with_a_tool), calls=2, agents=["forecaster"] * 2)


@rollout
async def two_agents(task: str, llm: LLM) -> None:
    """The second one streams."""
    client = client_of(llm, max_tokens=8)
    writer = AssistantAgent("writer", client)
    critic = AssistantAgent("critic", client, model_client_stream=True)
    team = RoundRobinGroupChat([writer, critic], termination_condition=MaxMessageTermination(3))
    said = await team.run(task=task)
    assert len(said.messages) == 3
    await client.close()


def test_two_agents_of_the_policy(real: Arena) -> None:
    real.check(real.run(two_agents), calls=2, agents=["writer", "critic"])
