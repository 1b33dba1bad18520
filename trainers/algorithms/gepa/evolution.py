"""The search of gepa, with rollouts of a store as its evaluations and a journal of all that it finds out."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict
from importlib.util import find_spec
from typing import Any, Literal, TypeVar, cast

from lightstream.schemas.distribution import install_hint
from lightstream.schemas.errors import SettingsError, TrainingError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import PromptTemplate
from lightstream.stream_processors.adapters import TraceToMessages

from ...run.data_sets import as_tasks
from ...run.identity import identity_of_dataset
from ...run.tasks import Dataset
from ..apo import (
    Finding,
    Journal,
    PromptRollouts,
    PromptVersion,
    RolloutResult,
    complete,
    conversations,
    errors_of,
    wrong_placeholders,
)
from .options import GepaOptions

logger = logging.getLogger(__name__)

T = TypeVar("T")
Example = tuple[Literal["train", "val"], int]
"""A task by its set and index: what gepa samples."""

REFLECTION = """You improve the prompt template of an agent. This is the template now:
<template>
<curr_param>
</template>

Below are runs of the agent with it: the task, the conversations, and feedback with the reward.

<side_info>

Find out what made rewards low or high. Then write a better template. State in it what the runs show about the task: its
rules, its facts, the form of a good answer, and a way of working that succeeded. Keep every placeholder in curly
brackets as it is, and add none. Write the new template between two lines of three backticks, and nothing after it."""


class PromptEvolution:
    """Evolves a prompt for the highest mean reward: gepa selects and accepts, a store's Runners do the rollouts.

    A model rewrites a prompt after reading some of its rollouts. A rewriting with more reward on the same tasks is
    measured on all validation tasks. The next parent is drawn from the prompts that are best on some task (the Pareto
    front).

    A :class:`~lightstream.trainers.algorithms.apo.Journal` keeps answers and rewards. The same search on the same store
    goes on where it was, and asks no model again what it has answered.

    Args:
        store: any store with Runners.
        client: an ``openai.AsyncOpenAI`` of any endpoint.
        options: how long to search.
        resource_name: name of the prompt among the agent's resources.
        seed_prompt: the prompt to begin with.
        train_dataset, val_dataset: tasks for rewritings, and to measure prompts on.
        name: names the search, together with its prompt, options and tasks.
        adapter: turns a rollout's spans into the conversations that the model reads.
        say: is told of the progress, a line at a time.

    Attributes:
        best: the prompt with the highest mean reward on the validation tasks so far.

    Raises:
        SettingsError: the library is not installed, or the budget does not reach for one measurement.
        TrainingError: a data set has no tasks, or one that cannot be sent; or the prompt cannot be filled in.
    """

    def __init__(
        self,
        store: LightningStore,
        client: Any,
        options: GepaOptions,
        *,
        resource_name: str,
        seed_prompt: PromptTemplate,
        train_dataset: Dataset,
        val_dataset: Dataset,
        name: str | None = None,
        adapter: TraceToMessages | None = None,
        say: Callable[[str], None] = logger.info,
    ) -> None:
        if find_spec("gepa") is None:
            raise SettingsError("the library gepa is not installed.", next_step=f"Run {install_hint('gepa')}.")
        if wrong := wrong_placeholders(seed_prompt.template, seed_prompt):
            raise TrainingError(f"the prompt template {resource_name!r} cannot be filled in: {wrong}")
        identity = [asdict(options), resource_name, seed_prompt.model_dump()]
        identity += [identity_of_dataset(train_dataset), identity_of_dataset(val_dataset)]
        digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:10]
        self.name = f"gepa-{digest}" if name is None else f"{name}-{digest}"
        self.best = PromptVersion("v0", seed_prompt)
        self._tasks = {"train": as_tasks(train_dataset), "val": as_tasks(val_dataset)}
        if options.max_metric_calls <= len(self._tasks["val"]):
            raise SettingsError(
                f"GEPA's max_metric_calls is {options.max_metric_calls}, but one measurement takes "
                f"{len(self._tasks['val'])} rollouts.",
                next_step="Raise it, or give fewer validation tasks.",
            )
        self._client = client
        self._options = options
        self._resource_name = resource_name
        self._say = say
        self._journal = Journal(store, self.name)
        self._rollouts = PromptRollouts(
            store,
            self.name,
            resource_name=resource_name,
            adapter=adapter or TraceToMessages(),
            timeout_s=options.rollout_batch_timeout,
            say=say,
        )
        self._versions = {seed_prompt.template: PromptVersion("v0", seed_prompt)}
        self._parents: dict[str, str] = {}
        self._rewritings = 0

    async def run(self) -> PromptVersion:
        """Search, and return the best prompt. It is the latest of the resources named after the search then.

        Raises:
            TrainingError: every rollout with the first prompt failed.
            Exception: what the client raises. All that was found out stays, and a further run goes on from there.
        """
        self._say(f"Search {self.name}: {self._options.max_metric_calls} rollouts.")
        bridge = _Bridge(self, asyncio.get_running_loop())
        try:
            await asyncio.to_thread(self._search, bridge)
        except asyncio.CancelledError:
            bridge.stop()
            raise
        except _Over as over:
            raise over.failure from None
        await self._rollouts.publish(self.name, self.best.prompt_template)
        self._say(f"Search {self.name} is over; its best prompt is {self.best.version}:")
        self._say(self.best.prompt_template.template)
        self._say(f"Every prompt: lightstream sql \"FROM prompts WHERE run_id = '{self.name}' ORDER BY score DESC\"")
        return self.best

    def _search(self, bridge: _Bridge) -> None:
        """Run gepa, which is synchronous, in a thread of its own."""
        from gepa.api import optimize

        options = self._options
        optimize(
            {self._resource_name: self.best.prompt_template.template},
            trainset=[("train", index) for index in range(len(self._tasks["train"]))],
            valset=[("val", index) for index in range(len(self._tasks["val"]))],
            adapter=cast("Any", bridge),  # gepa's protocol wants the proposer as an attribute, not as a method
            reflection_minibatch_size=min(options.reflection_minibatch_size, len(self._tasks["train"])),
            perfect_score=0.0 if options.perfect_score is None else options.perfect_score,
            skip_perfect_score=options.perfect_score is not None,
            max_metric_calls=options.max_metric_calls,
            logger=_Quiet(),
            seed=options.seed,
        )

    async def rewrite(self, template: str, examples: Sequence[Mapping[str, Any]]) -> str:
        """Return a new text for a prompt; the old one where the model answered nothing of use.

        Args:
            template: the prompt's text.
            examples: tasks, conversations and feedback, as gepa renders them.
        """
        from gepa.strategies.instruction_proposal import InstructionProposalSignature as Signature

        self._rewritings += 1
        parent, version = self._versions[template], f"v{self._rewritings}"

        async def find() -> Finding:
            fields = {"current_instruction_doc": template, "dataset_with_feedback": examples}
            prompt = Signature.prompt_renderer({**fields, "prompt_template": REFLECTION})
            messages = [{"role": "user", "content": str(prompt)}]
            options = self._options
            return await complete(
                self._client, "lightstream.apo.edit", options.reflection_model, messages, options.reflection_temperature
            )

        about: dict[str, str | int] = {"prompt": version, "parent": parent.version}
        answer = await self._journal.once(f"{version}-edit", find, about=about)
        text = "" if answer is None else Signature.output_extractor(answer.strip())["new_instruction"]
        if not text:
            self._say(f"{self._options.reflection_model} answered nothing on {parent.version}: no {version}.")
            return template
        if wrong := wrong_placeholders(text, parent.prompt_template):
            self._say(f"{version}, made of {parent.version}, is left out: {wrong}.")
            return template
        engine = parent.prompt_template.engine
        self._versions.setdefault(text, PromptVersion(version, PromptTemplate(template=text, engine=engine)))
        self._parents.setdefault(version, parent.version)
        return text

    async def evaluate(self, template: str, examples: Sequence[Example]) -> tuple[list[float], list[RolloutResult]]:
        """Run tasks with a prompt; return reward and outcome of each, in their order."""
        prompt = self._versions[template]
        mode, indices = examples[0][0], [index for _, index in examples]
        batch = f"{mode}-{hashlib.sha256(json.dumps(indices).encode()).hexdigest()[:10]}"
        tasks = [self._tasks[mode][index] for index in indices]
        outcomes = await self._rollouts.run(prompt.version, prompt.prompt_template, tasks, mode, batch)
        open_one = RolloutResult(status="not over in time", error=None, final_reward=None, spans=[], messages=[])
        results = [open_one if outcome is None else outcome for outcome in outcomes]
        if prompt.version == "v0" and all(result["status"] == "failed" for result in results):
            raise TrainingError(
                f"every rollout with the first prompt failed: {await self._rollouts.error(prompt.version, batch)}",
                next_step="Run the agent by itself on one task, with that prompt, and see its error.",
            )
        attributes = {"lightstream.apo.template": template, "lightstream.apo.tasks": len(tasks)}

        async def find() -> Finding:
            rewards = [result["final_reward"] or 0.0 for result in results]
            score = {"lightstream.apo.score": sum(rewards) / len(rewards)}
            return Finding(rewards, "lightstream.apo.score", attributes | score)

        about: dict[str, str | int] = {"prompt": prompt.version, "batch": batch}
        if prompt.version in self._parents:
            about["parent"] = self._parents[prompt.version]
        rewards = [float(reward) for reward in await self._journal.once(f"{prompt.version}-{batch}", find, about=about)]
        if mode == "val":
            self._note(prompt, sum(rewards) / len(rewards))
        return rewards, results

    def task(self, example: Example) -> Any:
        """Return the input of an example."""
        return self._tasks[example[0]][example[1]]

    def _note(self, prompt: PromptVersion, score: float) -> None:
        if self.best.score is None or score > self.best.score:
            self.best = PromptVersion(prompt.version, prompt.prompt_template, score)
        self._say(
            f"{prompt.version} has {score:.3f} on all {len(self._tasks['val'])} tasks; the best, {self.best.version}, "
            f"has {self.best.score:.3f}."
        )


class _Over(BaseException):
    """Ends gepa, which goes on after an Exception in a reflection.

    Attributes:
        failure: what ended the search.
    """

    def __init__(self, failure: BaseException) -> None:
        super().__init__(failure)
        self.failure = failure


class _Bridge:
    """What gepa calls from its thread; the work is done in the loop of the search."""

    def __init__(self, evolution: PromptEvolution, loop: asyncio.AbstractEventLoop) -> None:
        self._evolution = evolution
        self._loop = loop
        self._under_way: Future[Any] | None = None
        self._is_stopped = False

    def stop(self) -> None:
        """End the search as soon as its thread notices. Its work in the loop is cancelled."""
        self._is_stopped = True
        if self._under_way is not None:
            self._under_way.cancel()

    def evaluate(self, batch: list[Example], candidate: dict[str, str], capture_traces: bool = False) -> Any:
        """Called by gepa; blocks until the rollouts have ended."""
        from gepa.core.adapter import EvaluationBatch

        (template,) = candidate.values()
        rewards, results = self._do(self._evolution.evaluate(template, batch))
        inputs = [self._evolution.task(example) for example in batch]
        outcomes = list(zip(inputs, results, strict=True))
        return EvaluationBatch(outputs=results, scores=rewards, trajectories=outcomes if capture_traces else None)

    def make_reflective_dataset(
        self, candidate: dict[str, str], eval_batch: Any, components_to_update: list[str]
    ) -> dict[str, list[dict[str, Any]]]:
        """Called by gepa; does not block."""
        examples = [
            {
                "Task": json.dumps(task, ensure_ascii=False, default=str),
                "Conversations": conversations(result),
                "Feedback": f"{result['status']}, reward {reward:g}{errors_of(result)}",
            }
            for (task, result), reward in zip(eval_batch.trajectories, eval_batch.scores, strict=True)
        ]
        return dict.fromkeys(components_to_update, examples)

    def propose_new_texts(
        self,
        candidate: dict[str, str],
        reflective_dataset: Mapping[str, Sequence[Mapping[str, Any]]],
        components_to_update: list[str],
    ) -> dict[str, str]:
        """Called by gepa; blocks until the model has answered."""
        return {
            name: self._do(self._evolution.rewrite(candidate[name], reflective_dataset[name]))
            for name in components_to_update
        }

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._under_way = future
        if self._is_stopped:
            future.cancel()
        try:
            return future.result()
        except BaseException as error:
            raise _Over(error) from error


class _Quiet:
    """gepa's log, in ours."""

    def log(self, message: str) -> None:
        logger.debug("%s", message)
