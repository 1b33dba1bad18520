"""An environment of verifiers (v1): sums, a rubric of two rewards, and an agent loop of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import httpx
import verifiers.v1 as vf

__all__ = ["SumHarness", "SumTaskset"]

TASKS = 1000


class SumData(vf.TaskData):
    answer: int


class SumConfig(vf.TasksetConfig):
    fails: str = ""


class SumTask(vf.Task[SumData, vf.State, vf.TaskConfig]):
    @vf.reward(weight=1.0)
    async def right(self, trace: vf.Trace) -> float:
        if "raise" in trace.last_reply:
            raise ValueError("the rubric has a bug")
        if "nan" in trace.last_reply:
            return float("nan")
        return float(str(self.data.answer) in trace.last_reply)

    @vf.reward(weight=0.25)
    async def short(self, trace: vf.Trace) -> float:
        return 1 / (1 + len(trace.last_reply))


class SumTaskset(vf.Taskset[SumTask, SumConfig]):
    def load(self) -> Iterator[SumTask]:
        for number in range(TASKS):
            yield SumTask(SumData(prompt=f"{number} + {number} = ?", answer=2 * number), self.config.task)


class SumHarness(vf.Harness[vf.HarnessConfig]):
    """Asks, and asks again whether it is sure."""

    APPENDS_SYSTEM_PROMPT = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self, ctx, trace, runtime, endpoint, secret, mcp_urls, data, tool_interception_url=None
    ) -> vf.ProgramResult:
        messages = [{"role": "user", "content": data.prompt}]
        async with httpx.AsyncClient(
            timeout=httpx.Timeout(None), headers={"authorization": f"Bearer {secret}"}
        ) as client:
            for question in ("Are you sure?", None):
                body = {"model": ctx.model, "messages": messages}
                response = await client.post(f"{endpoint.rstrip('/')}/chat/completions", json=body)
                response.raise_for_status()
                messages.append({"role": "assistant", "content": response.json()["choices"][0]["message"]["content"]})
                if question:
                    messages.append({"role": "user", "content": question})
                if "hang" in messages[-2]["content"]:
                    await asyncio.Event().wait()
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")
