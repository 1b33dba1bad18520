"""Beam search over prompt templates."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from lightstream.schemas.errors import TrainingError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import PromptTemplate, RolloutMode
from lightstream.stream_processors.adapters import TraceToMessages

from ...run.data_sets import as_tasks
from ...run.identity import identity_of_dataset
from ...run.tasks import Dataset, sample_indices
from .editor import Editor
from .journal import Finding, Journal
from .options import ApoOptions
from .prompt_rollouts import PromptRollouts, RolloutResult, wrong_placeholders

__all__ = ["PromptSearch", "PromptVersion", "RolloutResult"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PromptVersion:
    """A prompt of a search.

    Attributes:
        version: ``v0`` for the one that was given; the others are numbered in the order of the search.
        score: mean reward on the tasks that it was compared on last.
    """

    version: str
    prompt_template: PromptTemplate
    score: float | None = None


class PromptSearch:
    """Looks for the prompt with the highest mean reward.

    In each round, the prompts of the beam are rolled out on training tasks; from the outcome a model derives a
    critique, with which another one edits the prompt; candidates and beam are compared on validation tasks, and the
    best form the next beam. The best of each round is measured on all validation tasks.

    Models' answers, scores and choices are kept by a :class:`Journal`, and names of rollouts follow from the search:
    the same search on the same store goes on where it was, and asks no model again what it has answered.

    Args:
        store: any store with Runners.
        client: an ``openai.AsyncOpenAI`` of any endpoint.
        options: how wide and how long to search.
        resource_name: name of the prompt among the agent's resources.
        seed_prompt: the prompt to begin with.
        train_dataset, val_dataset: tasks for critiques, and to compare prompts on.
        name: names the search, together with its prompt, options and tasks, so that only the same search goes on.
        adapter: makes of a rollout's spans the conversations that a critique is shown.
        say: is told of the progress, a line at a time.

    Attributes:
        best: the prompt with the highest score on all validation tasks so far.

    Raises:
        TrainingError: a data set has no tasks, or one that cannot be sent; or the prompt cannot be filled in.
    """

    def __init__(
        self,
        store: LightningStore,
        client: Any,
        options: ApoOptions,
        *,
        resource_name: str,
        seed_prompt: PromptTemplate,
        train_dataset: Dataset,
        val_dataset: Dataset,
        name: str | None = None,
        adapter: TraceToMessages | None = None,
        say: Callable[[str], None] = logger.info,
    ) -> None:
        if wrong := wrong_placeholders(seed_prompt.template, seed_prompt):
            raise TrainingError(f"the prompt template {resource_name!r} cannot be filled in: {wrong}")
        identity = [asdict(options), resource_name, seed_prompt.model_dump()]
        identity += [identity_of_dataset(train_dataset), identity_of_dataset(val_dataset)]
        digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:10]
        self.name = f"apo-{digest}" if name is None else f"{name}-{digest}"
        self.best = PromptVersion("v0", seed_prompt)
        self._store = store
        self._options = options
        self._train, self._val = as_tasks(train_dataset), as_tasks(val_dataset)
        self._say = say
        self._editor = Editor(client, options)
        self._journal = Journal(store, self.name)
        self._rollouts = PromptRollouts(
            store,
            self.name,
            resource_name=resource_name,
            adapter=adapter or TraceToMessages(),
            timeout_s=options.rollout_batch_timeout,
            say=say,
        )

    async def run(self) -> PromptVersion:
        """Search, and return the best prompt. It is the latest of the resources named after the search then.

        Raises:
            TrainingError: every rollout with the first prompt failed.
            Exception: what the client raises. What was found out by then stays, and a further run goes on from there.
        """
        beam = [self.best]
        self._say(f"Search {self.name}: {self._options.beam_rounds} rounds.")
        if await self._store.get_resources_by_id(self.name) is not None:
            self._say("It was over before, and its result stands. To search anew, give it another name: APO(name=…).")
        if self._options.run_initial_validation:
            await self._measure(self.best, 0)
        for number in range(1, self._options.beam_rounds + 1):
            candidates = await self._candidates(beam, number)
            beam = await self._select([*beam, *candidates], number)
            await self._measure(beam[0], number)
            scores = ", ".join(f"{prompt.version} {prompt.score:.3f}" for prompt in beam)
            self._say(f"Round {number} of {self._options.beam_rounds}: {len(candidates)} new prompts; kept {scores}.")
        await self._rollouts.publish(self.name, self.best.prompt_template)
        self._say(f"Search {self.name} is over; its best prompt is {self.best.version}:")
        self._say(self.best.prompt_template.template)
        self._say(f"Every prompt: lightstream sql \"FROM prompts WHERE run_id = '{self.name}' ORDER BY score DESC\"")
        return self.best

    # --- new prompts

    async def _candidates(self, beam: Sequence[PromptVersion], number: int) -> list[PromptVersion]:
        """Make the new prompts of a round, all at once; each text once."""
        width, branches = self._options.beam_width, self._options.branch_factor
        if len(beam) < width:
            parents = [beam[place % len(beam)] for place in range(width)]
        else:
            parents = self._random("parents", number).sample(list(beam), width)
        making: list[Awaitable[PromptVersion | None]] = []
        for place in range(width * branches):
            made = (number - 1) * width * branches + place
            making.append(self._child(parents[place // branches], made, number))
        known = {prompt.prompt_template.template for prompt in beam}
        children: list[PromptVersion] = []
        for child in await asyncio.gather(*making):
            if child is not None and child.prompt_template.template not in known:
                known.add(child.prompt_template.template)
                children.append(child)
        return children

    async def _child(self, parent: PromptVersion, made: int, number: int) -> PromptVersion | None:
        """Make a prompt from another one; ``None`` where a model answered nothing, or nothing of use."""
        version, template = f"v{made + 1}", parent.prompt_template
        about: dict[str, str | int] = {"round": number, "prompt": version, "parent": parent.version}

        async def find_critique() -> Finding:
            size = min(self._options.gradient_batch_size, len(self._train))
            chosen = sample_indices(made + 1, size, len(self._train), self._options.seed)
            tasks = [self._train[index] for index in chosen]
            results = await self._roll_out(parent, tasks, "train", f"for-{version}")
            return await self._editor.critique(template.template, results, self._random("critique", made))

        critique = await self._journal.once(f"{version}-critique", find_critique, about=about)
        if critique is None:
            self._say(f"{self._options.gradient_model} answered nothing on {parent.version}: no {version}.")
            return None
        find_edit = partial(self._editor.edit, template.template, critique, self._random("edit", made))
        text = await self._journal.once(f"{version}-edit", find_edit, about=about)
        if text is None:
            self._say(f"{self._options.apply_edit_model} answered nothing on {parent.version}: no {version}.")
            return None
        if wrong := wrong_placeholders(text, template):
            self._say(f"{version}, made of {parent.version}, is left out: {wrong}.")
            return None
        return PromptVersion(version, PromptTemplate(template=text, engine=template.engine))

    # --- scores

    async def _select(self, prompts: Sequence[PromptVersion], number: int) -> list[PromptVersion]:
        """Score prompts on a batch of validation tasks, and keep the best; of equals, the older ones."""
        size = min(self._options.val_batch_size, len(self._val))
        chosen = sample_indices(number, size, len(self._val), f"val-{self._options.seed}")
        tasks = [self._val[index] for index in chosen]
        scores = await asyncio.gather(*(self._score(prompt, tasks, f"round{number}", number) for prompt in prompts))
        scored = [
            PromptVersion(prompt.version, prompt.prompt_template, score)
            for prompt, score in zip(prompts, scores, strict=True)
        ]
        return sorted(scored, key=lambda prompt: -(prompt.score or 0.0))[: self._options.beam_width]

    async def _measure(self, prompt: PromptVersion, number: int) -> None:
        """Score a prompt on all validation tasks; it is the best one if no other had as much."""
        tasks = [self._val[index] for index in range(len(self._val))]
        score = await self._score(prompt, tasks, f"all{number}", number)
        if self.best.score is None or score > self.best.score:
            self.best = PromptVersion(prompt.version, prompt.prompt_template, score)
        self._say(
            f"{prompt.version} has {score:.3f} on all {len(tasks)} tasks; the best, {self.best.version}, has "
            f"{self.best.score:.3f}."
        )

    async def _score(self, prompt: PromptVersion, tasks: Sequence[Any], batch: str, number: int) -> float:
        async def find() -> Finding:
            results = await self._roll_out(prompt, tasks, "val", batch)
            if prompt.version == "v0" and results and all(result["status"] == "failed" for result in results):
                raise TrainingError(
                    f"every rollout with the first prompt failed: {await self._rollouts.error(prompt.version, batch)}",
                    next_step="Run the agent by itself on one task, with that prompt, and see its error.",
                )
            score = sum(result["final_reward"] or 0.0 for result in results) / len(tasks)
            attributes = {
                "lightstream.apo.template": prompt.prompt_template.template,
                "lightstream.apo.score": score,
                "lightstream.apo.tasks": len(tasks),
            }
            return Finding(score, "lightstream.apo.score", attributes)

        about: dict[str, str | int] = {"round": number, "prompt": prompt.version, "batch": batch}
        return float(await self._journal.once(f"{prompt.version}-{batch}-score", find, about=about))

    async def _roll_out(
        self, prompt: PromptVersion, tasks: Sequence[Any], mode: RolloutMode, batch: str
    ) -> list[RolloutResult]:
        results = await self._rollouts.run(prompt.version, prompt.prompt_template, tasks, mode, batch)
        return [result for result in results if result is not None]

    def _random(self, *what: object) -> random.Random:
        return random.Random(f"{self._options.seed}-{what}")  # noqa: S311  # a choice, not a secret
