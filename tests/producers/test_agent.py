"""Agents from classes and functions."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

import pytest

from lightstream.producers import DummyTracer, LitAgent, llm_rollout, prompt_rollout, rollout
from lightstream.producers.tracer import clear_active_tracer, set_active_tracer
from lightstream.schemas.errors import SettingsError
from lightstream.schemas.types import LLM, Attempt, AttemptedRollout, NamedResources, PromptTemplate, ProxyLLM

ROLLOUT = AttemptedRollout(
    rollout_id="r",
    input="x",
    start_time=1.0,
    attempt=Attempt(rollout_id="r", attempt_id="r-a1", sequence_id=1, start_time=1.0),
)


@rollout
def at_module_level(task: str, llm: LLM | None = None) -> str:
    """Its documentation."""
    return f"{task} {llm.endpoint if llm else ''}"


def test_a_decorated_function_stays_callable_and_keeps_its_name() -> None:
    assert at_module_level("hello") == "hello "
    assert (at_module_level.__name__, at_module_level.__doc__) == ("at_module_level", "Its documentation.")  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]  # taken over from the function


def test_a_decorated_function_can_be_sent_to_another_process() -> None:
    assert pickle.loads(pickle.dumps(at_module_level)) is at_module_level  # noqa: S301  # our own bytes


def test_a_callable_object_can_be_an_agent() -> None:
    class Agent:
        async def __call__(self, task: str) -> float:
            return 1.0

    agent = rollout(Agent())
    assert agent.is_async()
    assert asyncio.run(agent.rollout_async("x", {}, ROLLOUT)) == 1.0


def test_proxied_models_keep_their_kind_on_demand() -> None:
    seen: list[LLM] = []

    @rollout(strip_proxy=False)
    def agent(task: str, llm: LLM) -> None:
        seen.append(llm)

    proxied = ProxyLLM(endpoint="http://p/v1", model="m")
    agent.rollout("x", {"a": proxied}, ROLLOUT)
    assert seen == [proxied]


@pytest.mark.parametrize("function", [lambda: None, lambda task, tools: None, lambda prompt: None])
def test_functions_that_are_no_agents_are_refused(function: Any) -> None:
    with pytest.raises(TypeError, match="is not a rollout function"):
        rollout(function)


def test_an_agent_without_a_method_says_so() -> None:
    assert not LitAgent[str]().is_async()
    with pytest.raises(NotImplementedError, match="LitAgent must have a rollout"):
        LitAgent[str]()("x", {}, ROLLOUT)


def test_decorators_that_name_what_the_function_needs() -> None:
    @llm_rollout
    def asks(task: str, llm: LLM) -> str:
        return llm.endpoint

    @llm_rollout(strip_proxy=False)
    def asks_proxied(task: str, llm: LLM) -> str:
        return llm.endpoint

    @prompt_rollout
    def fills_in(task: str, prompt_template: PromptTemplate) -> str:
        return prompt_template.format(what=task)

    resources: NamedResources = {
        "llm": ProxyLLM(endpoint="http://p/v1", model="m"),
        "prompt": PromptTemplate(template="say {what}"),
    }
    results: list[Any] = [agent.rollout("x", resources, ROLLOUT) for agent in (asks, asks_proxied, fills_in)]
    assert results == ["http://p/rollout/r/attempt/r-a1/v1", "http://p/v1", "say x"]
    with pytest.raises(TypeError, match="has no llm"):
        llm_rollout(fills_in)
    with pytest.raises(TypeError, match="has no prompt_template"):
        prompt_rollout()(asks)


def test_an_agent_has_the_tracer_of_its_attempt() -> None:
    class Agent(LitAgent[str]):
        def __init__(self) -> None:
            super().__init__(trained_agents="writer")

    agent, tracer = Agent(), DummyTracer()
    assert agent.trained_agents == "writer"
    with pytest.raises(SettingsError, match="Agent runs outside of any attempt"):
        _ = agent.tracer
    set_active_tracer(tracer)
    try:
        assert agent.tracer is agent.get_tracer() is tracer
    finally:
        clear_active_tracer()


def test_an_agent_knows_who_runs_and_trains_it_while_they_live() -> None:
    class Owner:
        tracer = DummyTracer()

    agent, runner, trainer = Holding(), Owner(), Owner()
    with pytest.raises(SettingsError, match="has no Trainer"):
        _ = agent.trainer
    agent.set_trainer(trainer)
    agent.set_runner(runner)
    assert (agent.trainer, agent.runner, agent.tracer) == (trainer, runner, runner.tracer)
    again = pickle.loads(pickle.dumps(agent))  # noqa: S301  # written one line above
    with pytest.raises(SettingsError, match="has no Runner"):
        _ = again.runner
    del runner
    assert agent.tracer is trainer.tracer
    with pytest.raises(SettingsError, match="has no Runner"):
        agent.get_runner()


class Holding(LitAgent[str]):
    """Calls no ``__init__`` of its base."""

    def __init__(self) -> None:
        self.held = 1
