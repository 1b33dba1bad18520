"""DSPy: a program of a ReAct agent, whose calls LiteLLM makes."""

from __future__ import annotations

import dspy

from lightstream.producers import rollout
from lightstream.schemas.types import LLM
from tests.frameworks.harness import Arena
from tests.frameworks.model_server import Say, ScriptedModel


def weather(city: str) -> str:
    """The weather of a city."""
    return f"rain in {city}"


def answer(request: dict[str, object]) -> Say:
    said = str(request["messages"])
    if "[[ ## next_thought ## ]]" not in said:
        return Say("[[ ## reasoning ## ]]\nIt is known.\n\n[[ ## answer ## ]]\nRain.\n\n[[ ## completed ## ]]")
    tool, arguments = ("finish", "{}") if "rain in Bergen" in said else ("weather", '{"city": "Bergen"}')
    return Say(
        f"[[ ## next_thought ## ]]\nAsk.\n\n[[ ## next_tool_name ## ]]\n{tool}\n\n"
        f"[[ ## next_tool_args ## ]]\n{arguments}\n\n[[ ## completed ## ]]"
    )


@rollout
def program(task: str, llm: LLM) -> None:
    model = dspy.LM(f"openai/{llm.model}", api_base=llm.endpoint, api_key="none", cache=False)
    with dspy.context(lm=model):
        said = dspy.ReAct("question -> answer", tools=[weather], max_iters=3)(question=task)
    assert said.answer == "Rain."


def test_a_program(scripted: Arena, script: ScriptedModel) -> None:
    script.script = answer
    scripted.check(scripted.run(program), calls=3)
