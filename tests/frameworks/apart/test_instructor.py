"""Instructor: an answer of a given shape, asked for again where it has another."""

from __future__ import annotations

import instructor
import openai
from pydantic import BaseModel

from lightstream.producers import rollout
from lightstream.schemas.types import LLM
from tests.frameworks.harness import Arena
from tests.frameworks.model_server import CallTools, ScriptedModel, in_turn


class Forecast(BaseModel):
    """What is asked for."""

    city: str
    degrees: int


@rollout
async def agent(task: str, llm: LLM) -> None:
    client = instructor.from_openai(openai.AsyncOpenAI(base_url=llm.endpoint, api_key="none", max_retries=0))
    messages = [{"role": "user", "content": task}]
    said = await client.chat.completions.create(model=llm.model, messages=messages, response_model=Forecast)
    assert said.degrees == 7


def test_an_answer_that_is_asked_for_again(scripted: Arena, script: ScriptedModel) -> None:
    script.script = in_turn(
        CallTools.of("Forecast", city="Bergen", degrees="mild"), CallTools.of("Forecast", city="Bergen", degrees=7)
    )
    scripted.check(scripted.run(agent), calls=2)
