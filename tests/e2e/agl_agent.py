"""An agent as Agent Lightning's documentation writes them. Of Lightstream it knows one import."""

from __future__ import annotations

from typing import Any

from openai import OpenAI

import lightstream.agl as agl
from lightstream.agl.utils.otel import make_link_attributes, make_tag_attributes


class Calculator(agl.LitAgent[dict[str, Any]]):
    """Two calls: a draft, judged by itself, and the answer. The final reward has two dimensions."""

    def training_rollout(self, task: dict[str, Any], resources: agl.NamedResources, rollout: agl.Rollout) -> None:
        llm = resources["main_llm"]
        template = resources["prompt"]
        assert isinstance(llm, agl.LLM)
        assert isinstance(template, agl.PromptTemplate)
        assert isinstance(rollout, agl.AttemptedRollout)
        client = OpenAI(
            base_url=llm.get_base_url(rollout.rollout_id, rollout.attempt.attempt_id), api_key="none", max_retries=0
        )
        prompt = template.format(question=task["question"])
        agl.emit_message("drafting", {"question": task["question"]})
        draft = client.chat.completions.create(
            model=llm.model, messages=[{"role": "user", "content": f"draft: {prompt}"}]
        )
        answer = client.chat.completions.create(
            model=llm.model, messages=[{"role": "user", "content": f"answer: {prompt}"}]
        )
        right = self.compare(answer.choices[0].message.content, task["answer"])
        agl.emit_reward(
            0.25, attributes=make_link_attributes({"gen_ai.response.id": draft.id}) | make_tag_attributes(["draft"])
        )
        agl.emit_object({"draft": draft.id, "answer": answer.id})
        agl.emit_reward({"brief": 0.5, "right": right}, primary_key="right")
        assert agl.find_final_reward(self.tracer.get_last_trace()) == right

    @agl.operation
    def compare(self, said: str | None, wanted: str) -> bool:
        """Whether the answer is right."""
        return said == wanted


@agl.rollout
async def describe(task: str, llm: agl.LLM) -> float:
    """One call; what is returned is the reward."""
    from openai import AsyncOpenAI

    async with AsyncOpenAI(base_url=llm.endpoint, api_key="none", max_retries=0) as client:
        await client.chat.completions.create(model=llm.model, messages=[{"role": "user", "content": task}])
    return 0.75
