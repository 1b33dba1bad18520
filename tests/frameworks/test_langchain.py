"""LangChain's chat model, and agents of LangGraph."""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AnyMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph

from lightstream.producers import rollout
from lightstream.schemas.types import LLM
from tests.frameworks.harness import Arena
from tests.frameworks.model_server import CallTools, Say, ScriptedModel, in_turn


def model_of(llm: LLM, **options: Any) -> ChatOpenAI:
    options |= {"base_url": llm.endpoint, "api_key": "none", "max_retries": 0}
    return ChatOpenAI(model=llm.model, **options)


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"rain in {city}"


@rollout
async def chats(task: str, llm: LLM) -> None:
    """Whole, in pieces, and by the responses interface; greedy, as an answer without words joins with nothing."""
    await model_of(llm, max_tokens=8, temperature=0).ainvoke(task)
    assert [piece async for piece in model_of(llm, max_tokens=8, temperature=0).astream(task)]
    await model_of(llm, max_tokens=8, temperature=0, use_responses_api=True).ainvoke(task)


def test_calls_of_the_policy(real: Arena) -> None:
    real.check(real.run(chats), calls=3)


@rollout
def agent_with_tools(task: str, llm: LLM) -> None:
    """A synchronous agent of LangChain's, which is a graph of LangGraph's."""
    agent = create_agent(model_of(llm), [weather], name="forecaster")
    said = agent.invoke({"messages": [{"role": "user", "content": task}]})
    assert said["messages"][-1].content == "Rain in both."


def test_an_agent_with_two_tools_at_once(scripted: Arena, script: ScriptedModel) -> None:
    both = CallTools((("weather", {"city": "Bergen"}), ("weather", {"city": "Voss"})))
    script.script = in_turn(both, Say("Rain in both."))
    seen = scripted.run(agent_with_tools)
    scripted.check(seen, calls=2, agents=["forecaster", "forecaster"])


@rollout
async def graph_of_two_agents(task: str, llm: LLM) -> None:
    """Two nodes, each an agent; the second streams."""
    model = model_of(llm)

    async def writer(state: MessagesState) -> dict[str, list[AnyMessage]]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    async def critic(state: MessagesState) -> dict[str, list[AnyMessage]]:
        pieces = [piece async for piece in model.astream(state["messages"])]
        said = pieces[0]
        for piece in pieces[1:]:
            said += piece
        return {"messages": [said]}

    graph: Any = StateGraph(MessagesState)
    graph.add_node("writer", writer)
    graph.add_node("critic", critic)
    graph.add_edge(START, "writer")
    graph.add_edge("writer", "critic")
    graph.add_edge("critic", END)
    said = await graph.compile().ainvoke({"messages": [{"role": "user", "content": task}]})
    assert len(said["messages"]) == 3


def test_a_graph_of_two_agents(scripted: Arena) -> None:
    scripted.check(scripted.run(graph_of_two_agents), calls=2, agents=["writer", "critic"])
