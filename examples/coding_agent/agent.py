"""The agent: shown a file whose test fails, the model edits a line by a tool, and the test runs again.

It talks to the model as to Claude: by Anthropic's SDK, messages and tools. A test that passes after the first edit
counts 1, after the second 0.5.
"""

from __future__ import annotations

import asyncio
from typing import Any

from anthropic import AsyncAnthropic
from anthropic.types import MessageParam, ToolParam, ToolUseBlock

from lightstream.producers import LLM, rollout

from .bugs import Bug, passes, text_of

__all__ = ["EDIT", "FAILED", "fix"]

EDIT = ToolParam(
    name="edit",
    description="put this line into the function",
    input_schema={"type": "object", "properties": {"line": {"type": "string"}}, "required": ["line"]},
)
FAILED = "AssertionError"
REWARDS = (1.0, 0.5)
"""Of a test that passes after the first and after the second edit."""

_CLIENT = AsyncAnthropic(base_url="http://localhost", api_key="none", max_retries=2)
"""One connection pool per process; each rollout has an address of its own."""


@rollout
async def fix(task: Bug, llm: LLM) -> float:
    """One file; returns its reward."""
    client = _CLIENT.with_options(base_url=llm.endpoint)
    sampling = dict(llm.sampling_parameters)
    asked: Any = {
        "model": llm.model,
        "max_tokens": sampling.pop("max_tokens"),
        "tools": [EDIT],
        "extra_body": sampling,  # the SDK has no temperature
    }
    messages: list[MessageParam] = [{"role": "user", "content": text_of(task, task["line"])}]
    for reward in REWARDS:
        answer = await client.messages.create(messages=messages, **asked)
        edit = next((block for block in answer.content if isinstance(block, ToolUseBlock)), None)
        if edit is None:
            return 0.0
        if await asyncio.to_thread(passes, text_of(task, _line(edit.input))):
            return reward
        messages.append({"role": "assistant", "content": answer.content})
        messages.append(
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": edit.id, "content": FAILED}]}
        )
    return 0.0


def _line(given: Any) -> str:
    return str(given.get("line", ""))
