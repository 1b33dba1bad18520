"""LlamaIndex: an agent that calls functions, which streams by itself."""

from __future__ import annotations

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai_like import OpenAILike

from lightstream.producers import rollout
from lightstream.schemas.types import LLM
from tests.frameworks.harness import Arena
from tests.frameworks.model_server import CallTools, Say, ScriptedModel, in_turn


def weather(city: str) -> str:
    """The weather of a city."""
    return f"rain in {city}"


@rollout
async def agent(task: str, llm: LLM) -> None:
    model = OpenAILike(
        model=llm.model,
        api_base=llm.endpoint,
        api_key="none",
        is_chat_model=True,
        is_function_calling_model=True,
        max_retries=0,
    )
    said = await FunctionAgent(name="forecaster", tools=[weather], llm=model).run(task)
    assert str(said) == "Rain in Bergen."


def test_an_agent(scripted: Arena, script: ScriptedModel) -> None:
    script.script = in_turn(CallTools.of("weather", city="Bergen"), Say("Rain in Bergen."))
    scripted.check(scripted.run(agent), calls=2, bystanders=2)  # the preparation of each has a span of LLM kind
