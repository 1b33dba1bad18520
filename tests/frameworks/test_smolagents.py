"""smolagents: an agent that calls tools, and one that writes code."""

from __future__ import annotations

from typing import Any

import pytest
from smolagents import CodeAgent, OpenAIServerModel, ToolCallingAgent, tool

from lightstream.producers import LitAgent, rollout
from lightstream.schemas.types import LLM
from tests.frameworks.harness import Arena
from tests.frameworks.model_server import CallTools, Say, Script, ScriptedModel, in_turn

CODE = "Thought: it is known.\n<code>\nfinal_answer(weather(city='Bergen'))\n</code>"


def weather(city: str) -> str:
    """The weather of a city.

    Args:
        city: which one.
    """
    return f"rain in {city}"


TOOLS: Any = [tool(weather)]


def agent_of(kind: type[Any]) -> LitAgent[Any]:
    @rollout
    def agent(task: str, llm: LLM) -> None:
        model = OpenAIServerModel(model_id=llm.model, api_base=llm.endpoint, api_key="none")
        said = kind(tools=TOOLS, model=model, name="forecaster", verbosity_level=0).run(task)
        assert said == "rain in Bergen"

    return agent


@pytest.mark.parametrize(
    ("kind", "script_of", "calls"),
    [
        (
            ToolCallingAgent,
            in_turn(CallTools.of("weather", city="Bergen"), CallTools.of("final_answer", answer="rain in Bergen")),
            2,
        ),
        (CodeAgent, in_turn(Say(CODE)), 1),
    ],
)
def test_an_agent(scripted: Arena, script: ScriptedModel, kind: type[Any], script_of: Script, calls: int) -> None:
    script.script = script_of
    seen = scripted.run(agent_of(kind))
    scripted.check(seen, calls=calls, agents=["forecaster"] * calls)
