"""Calls of the models that criticise a prompt and edit it. What is said to them is here, too."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

from lightstream.schemas.types import Attributes

from .journal import Finding
from .options import ApoOptions
from .prompt_rollouts import RolloutResult, errors_of

ROLLOUT_CHARACTERS_MAX = 12_000
"""Of a rollout's conversations, that a critique is shown; the middle of longer ones is left out."""


CRITIQUES = (
    (
        "You improve prompt templates. You are given a template and some runs of an agent that used it, each "
        "with its conversations and its reward. Find out why rewards were low, or what made them high. Answer"
        " with a short list of changes to the template: each concrete, each something that a further run "
        "could confirm. Do not write the new template."
    ),
    (
        "You review prompt templates before they go into production. Compare what the template below asks for"
        " with what the agent did in the runs beside it. Name what it leaves open: the goal, the order of the"
        " steps, definitions, limits, the form of the answer. Where runs with high and low rewards differ, "
        "say what the template should state so that all become like the better ones. At most five points, "
        "most important first."
    ),
)

EDITS = (
    (
        "Rewrite the prompt template so that it does what the critique asks for. You may change its "
        "structure. Keep every placeholder in curly brackets as it is, and add none. Answer with the new "
        "template alone: no introduction, no explanation, no quotation marks around it."
    ),
    (
        "Change the prompt template as little as possible so that the most important point of the critique is"
        " dealt with. Keep its tone, its length and every placeholder in curly brackets, and add none. Answer"
        " with the new template alone: no introduction, no explanation, no quotation marks around it."
    ),
)


class Editor:
    """Makes critiques and edits.

    Args:
        client: an ``openai.AsyncOpenAI`` of any endpoint, or what has ``chat.completions.create`` as it.
        options: models and temperature.
    """

    def __init__(self, client: Any, options: ApoOptions) -> None:
        self._client = client
        self._options = options

    async def critique(self, template: str, results: Sequence[RolloutResult], rng: random.Random) -> Finding:
        """Return the faults of a template, or ``None`` where the model answered nothing.

        Raises:
            Exception: what the client raises.
        """
        runs = "\n\n".join(_run(number, result) for number, result in enumerate(results, 1))
        prompt = f"Template:\n<template>\n{template}\n</template>\n\n{runs}"
        return await self._answer(
            "lightstream.apo.critique", self._options.gradient_model, rng.choice(CRITIQUES), prompt
        )

    async def edit(self, template: str, critique: str, rng: random.Random) -> Finding:
        """Return the template, edited; ``None`` where the model answered nothing. Raises as :meth:`critique`."""
        prompt = f"Template:\n<template>\n{template}\n</template>\n\nCritique:\n{critique}"
        return await self._answer("lightstream.apo.edit", self._options.apply_edit_model, rng.choice(EDITS), prompt)

    async def _answer(self, span_name: str, model: str, instructions: str, prompt: str) -> Finding:
        messages = [{"role": "system", "content": instructions}, {"role": "user", "content": prompt}]
        return await complete(self._client, span_name, model, messages, self._options.diversity_temperature)


async def complete(
    client: Any, span_name: str, model: str, messages: Sequence[Mapping[str, str]], temperature: float
) -> Finding:
    """Return a model's answer with the attributes of its call; ``None`` where it is empty. Raises as the client."""
    completion = await client.chat.completions.create(model=model, messages=list(messages), temperature=temperature)
    text = completion.choices[0].message.content if completion.choices else None
    attributes: Attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": model,
        "gen_ai.request.temperature": temperature,
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": text or "",
    }
    for number, message in enumerate(messages):
        attributes |= {f"gen_ai.prompt.{number}.{name}": value for name, value in message.items()}
    if usage := getattr(completion, "usage", None):
        attributes["gen_ai.usage.input_tokens"] = usage.prompt_tokens
        attributes["gen_ai.usage.output_tokens"] = usage.completion_tokens
    return Finding(text or None, span_name, attributes)


def _run(number: int, result: RolloutResult) -> str:
    reward = "none" if result["final_reward"] is None else f"{result['final_reward']:g}"
    return f"Run {number} {result['status']}, reward {reward}:\n{conversations(result)}{errors_of(result)}"


def conversations(result: RolloutResult) -> str:
    """Return a rollout's conversations as JSON; of a long one, the middle is left out."""
    messages = json.dumps(result["messages"], ensure_ascii=False, indent=1)
    if len(messages) > ROLLOUT_CHARACTERS_MAX:
        half = ROLLOUT_CHARACTERS_MAX // 2
        messages = f"{messages[:half]}\n[… {len(messages) - 2 * half} characters left out …]\n{messages[-half:]}"
    return messages
