"""The agent: the model picks a tool, the tool runs, the model judges the tool's result.

Both calls land in one trajectory, in order, each with its own tokens. The first call's choice is rewarded by the data
set's verifier; the second call is asked whether the tool's answer is right (``Y`` or ``N``). Each half counts 0.5.
"""

from __future__ import annotations

from openai import AsyncOpenAI

from examples.tool_router.agent import prompt_of
from examples.tool_router.tasks import Task, score
from examples.tool_router.tools import use_tool
from lightstream.producers import emit_reward, rollout
from lightstream.schemas.types import LLM, AttemptedRollout

__all__ = ["pick_and_judge"]


@rollout
async def pick_and_judge(task: Task, llm: LLM, rollout: AttemptedRollout) -> None:
    """One task; its reward is emitted, not returned."""
    client = AsyncOpenAI(
        base_url=llm.get_base_url(rollout.rollout_id, rollout.attempt.attempt_id), api_key="none", max_retries=0
    )
    messages = prompt_of(task)
    picked = await client.chat.completions.create(
        model=llm.model,
        messages=messages,  # type: ignore[arg-type]  # plain dicts are what the SDK takes
        **llm.sampling_parameters,
    )
    letter = (picked.choices[0].message.content or "").strip()[:1]
    answer = use_tool(letter, task["question"])
    messages = [
        *messages,
        {"role": "assistant", "content": letter},
        {"role": "user", "content": f"The tool says: {answer or 'nothing'}. Right?"},
    ]
    judged = await client.chat.completions.create(
        model=llm.model,
        messages=messages,  # type: ignore[arg-type]  # as above
        **llm.sampling_parameters,
    )
    is_right = score(task, answer) == 1.0
    says_right = (judged.choices[0].message.content or "").strip()[:1] == "Y"
    emit_reward(0.5 * is_right + 0.5 * (says_right == is_right))
    await client.close()
