"""An agent whose tools are those of an MCP server, a process of its own that is spoken to over standard input."""

from __future__ import annotations

import sys
from pathlib import Path

from agents import Agent, OpenAIChatCompletionsModel, Runner
from agents.mcp import MCPServerStdio
from openai import AsyncOpenAI

from lightstream.producers import rollout
from lightstream.schemas.types import LLM
from tests.frameworks.harness import Arena
from tests.frameworks.model_server import CallTools, Say, ScriptedModel, in_turn

SERVER = Path(__file__).with_name("mcp_server.py")


@rollout
async def forecaster(task: str, llm: LLM) -> None:
    client = AsyncOpenAI(base_url=llm.endpoint, api_key="none", max_retries=0)
    command = {"command": sys.executable, "args": [str(SERVER)]}
    async with MCPServerStdio(params=command, client_session_timeout_seconds=60) as server:  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # a TypedDict
        model = OpenAIChatCompletionsModel(llm.model, client)
        said = await Runner.run(Agent(name="forecaster", model=model, mcp_servers=[server]), task)
    assert said.final_output == "Rain in Bergen."
    await client.close()


def test_an_agent_with_tools_of_a_server(scripted: Arena, script: ScriptedModel) -> None:
    script.script = in_turn(CallTools.of("weather", city="Bergen"), Say("Rain in Bergen."))
    seen = scripted.run(forecaster)
    scripted.check(seen, calls=2, agents=["forecaster", "forecaster"])
    results = [message for given in script.given for message in given.request["messages"] if message["role"] == "tool"]
    assert len(results) == 2
    assert all("rain in Bergen" in str(message["content"]) for message in results)
