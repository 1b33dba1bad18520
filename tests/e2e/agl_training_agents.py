"""Agents as Agent Lightning's calc_x and spider write them, with small tasks. Of Lightstream they know one import."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any, cast

from openai import AsyncOpenAI, OpenAI

import lightstream.agl as agl

TOKENS_MAX = 4
"""An untrained model says anything."""


@agl.rollout
async def calculate(task: dict[str, str], llm: agl.LLM) -> None:
    """Asks for a number, and emits its reward."""
    async with AsyncOpenAI(base_url=llm.endpoint, api_key="none") as client:
        answer = await client.chat.completions.create(
            model=llm.model,
            messages=[{"role": "user", "content": task["question"]}],
            temperature=llm.sampling_parameters.get("temperature", 0.7),
            max_tokens=TOKENS_MAX,
        )
    agl.emit_reward(float(len(answer.choices[0].message.content or "") % 2))


class QueryAgent(agl.LitAgent[dict[str, Any]]):
    """Asks for a query, and once more with what the database says of it."""

    def __init__(self) -> None:
        super().__init__(trained_agents=r"write")

    def rollout(self, task: dict[str, Any], resources: agl.NamedResources, rollout: agl.Rollout) -> float | None:
        llm = cast("agl.LLM", resources["main_llm"])
        attempted = cast("agl.AttemptedRollout", rollout)
        client = OpenAI(base_url=llm.get_base_url(rollout.rollout_id, attempted.attempt.attempt_id), api_key="none")
        assert rollout.mode in ("train", "val")
        asked: list[Any] = [{"role": "user", "content": task["question"]}]
        said = ""
        with closing(sqlite3.connect(":memory:")) as database, client:
            for _ in range(2):
                answer = client.chat.completions.create(model=llm.model, messages=asked, max_tokens=TOKENS_MAX)
                said = answer.choices[0].message.content or ""
                try:
                    told = str(database.execute(said).fetchall())
                except sqlite3.Error as error:
                    told = str(error)
                asked += [{"role": "assistant", "content": said}, {"role": "user", "content": told}]
        return float(len(said) % 2)
