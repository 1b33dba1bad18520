"""The agent: the model picks a tool, the tool runs, the model judges the tool's result.

Both calls land in one trajectory, in order, each with its own tokens; the tool's run is a plain OpenTelemetry span
beside them. The first call's choice is rewarded by the data set's verifier; the second call is asked whether the tool's
answer is right (``Y`` or ``N``). Each half counts 0.5.
"""

from __future__ import annotations

from openai import AsyncOpenAI, DefaultAioHttpClient
from opentelemetry import trace

from examples.tool_router.agent import prompt_of
from examples.tool_router.tasks import Task, score
from examples.tool_router.tools import TOOLS, use_tool
from lightstream.producers import LLM, AttemptedRollout, emit_reward, rollout

__all__ = ["ANSWERS", "TOOL_SPAN", "pick_and_judge"]

ANSWERS = [*TOOLS, "Y", "N"]
"""Everything that a call may sensibly answer."""

TOOL_SPAN = "tool"

_CLIENT = AsyncOpenAI(base_url="http://localhost", api_key="none", max_retries=0, http_client=DefaultAioHttpClient())
"""One connection pool per process; each rollout has an address of its own."""


@rollout
async def pick_and_judge(task: Task, llm: LLM, rollout: AttemptedRollout) -> None:
    """One task; its reward is emitted, not returned."""
    client = _CLIENT.with_options(base_url=llm.get_base_url(rollout.rollout_id, rollout.attempt.attempt_id))
    messages = prompt_of(task)
    letter = await _ask(client, llm, messages)
    with trace.get_tracer(__name__).start_as_current_span(TOOL_SPAN) as span:
        answer = use_tool(letter, task["question"])
        span.set_attributes({"tool.name": _name_of(letter), "tool.answer": answer or ""})
    messages += [
        {"role": "assistant", "content": letter},
        {"role": "user", "content": f"The tool says: {answer or 'nothing'}. Right?"},
    ]
    verdict = await _ask(client, llm, messages)
    is_right = score(task, answer) == 1.0
    emit_reward(0.5 * is_right + 0.5 * ((verdict == "Y") == is_right))


async def _ask(client: AsyncOpenAI, llm: LLM, messages: list[dict[str, str]]) -> str:
    """The first letter of what the model says."""
    completion = await client.chat.completions.create(
        model=llm.model,
        messages=messages,  # type: ignore[arg-type]  # plain dicts are what the SDK takes
        **llm.sampling_parameters,
    )
    return (completion.choices[0].message.content or "").strip()[:1]


def _name_of(letter: str) -> str:
    tool = TOOLS.get(letter)
    return "none" if tool is None else tool.__name__
