"""Prompts evolved by gepa on a store in memory, by real HTTP calls of a scripted model."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest
from openai import InternalServerError

import lightstream.agl as agl
from lightstream.schemas.errors import SettingsError, TrainingError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import PromptTemplate
from lightstream.store_views.stores import InMemoryLightningStore
from lightstream.trainers.algorithms.gepa import GepaOptions, PromptEvolution

from .test_apo import SEED, TASKS, WORDS, Killed, MortalStore, ScriptedModel, follower, runners, words_in

OPTIONS = GepaOptions(max_metric_calls=60, reflection_minibatch_size=2)


def template_in(prompt: str) -> str:
    return prompt.partition("<template>\n")[2].partition("\n</template>")[0]


def add_a_word(prompt: str) -> str:
    """The template with the first planted word that it lacks."""
    template = template_in(prompt)
    word = next((word for word in WORDS if word not in template), "")
    return f"It lacks a word.\n```\n{template} {word}\n```"


def evolution_on(
    store: LightningStore, model: ScriptedModel, options: GepaOptions = OPTIONS, **changes: Any
) -> PromptEvolution:
    arguments: dict[str, Any] = {
        "resource_name": "prompt",
        "seed_prompt": SEED,
        "train_dataset": TASKS,
        "val_dataset": TASKS[:4],
    }
    return PromptEvolution(store, model.client(), options, **(arguments | changes))


def test_the_planted_prompt_is_found_by_a_program_for_agent_lightning() -> None:
    model, store = ScriptedModel(add_a_word), InMemoryLightningStore()
    algorithm = agl.GEPA(model.client(), max_metric_calls=60, reflection_minibatch_size=2)
    trainer = agl.Trainer(algorithm=algorithm, n_runners=2, store=store, initial_resources={"prompt_template": SEED})
    trainer.fit(follower, train_dataset=TASKS, val_dataset=TASKS[:4])
    best = algorithm.get_best_prompt()
    assert words_in(best.template) == set(WORDS)
    latest = asyncio.run(store.get_latest_resources())
    assert latest is not None
    assert latest.resources == {"prompt_template": best}, "what the next rollouts are given"


def test_the_model_reads_task_reward_and_error_and_each_prompt_is_a_span() -> None:
    model, store = ScriptedModel(add_a_word), InMemoryLightningStore()

    @agl.rollout
    def choosy(task: dict[str, str], prompt_template: PromptTemplate) -> float:
        if task["question"] == "q0":
            raise ValueError("no answer to q0")
        return 0.25

    with runners(store, choosy):
        asyncio.run(evolution_on(store, model, GepaOptions(max_metric_calls=10, reflection_minibatch_size=6)).run())
    assert template_in(model.asked[0]) == SEED.template
    assert all(task["question"] in model.asked[0] for task in TASKS)
    assert "failed, reward 0\nError: ValueError: no answer to q0" in model.asked[0]
    assert "succeeded, reward 0.25" in model.asked[0]
    scores = asyncio.run(store.query_rollouts(rollout_id_contains="-v0-val-"))
    told = [
        span.attributes
        for rollout in scores
        for span in asyncio.run(store.query_spans(rollout.rollout_id))
        if span.name == "lightstream.apo.score"
    ]
    assert [(a["lightstream.apo.prompt"], a["lightstream.apo.score"], a["lightstream.apo.tasks"]) for a in told] == [
        ("v0", 0.75 / 4, 4)
    ]
    (edit,) = asyncio.run(store.query_rollouts(rollout_id_contains="v1-edit"))
    assert edit.input == {"prompt": "v1", "parent": "v0"}


@pytest.mark.parametrize("after", [False, True])
def test_killed_anywhere_it_goes_on_and_asks_nothing_again_that_was_answered(after: bool) -> None:
    options = GepaOptions(max_metric_calls=20, reflection_minibatch_size=2)
    undisturbed, store = ScriptedModel(add_a_word), InMemoryLightningStore()
    with runners(store):
        expected = asyncio.run(evolution_on(store, undisturbed, options).run())
    assert words_in(expected.prompt_template.template) >= set(WORDS[:2])
    for calls in range(1 + after, 200, 5):
        mortal, model = MortalStore(), ScriptedModel(add_a_word)
        mortal.calls_left, mortal.after = calls, after
        with runners(mortal):
            try:
                asyncio.run(evolution_on(mortal, model, options).run())
                killed = False
            except Killed:
                killed = True
            mortal.calls_left = -1
            before = len(model.asked)
            best = asyncio.run(evolution_on(mortal, model, options).run())
        assert best == expected
        assert len(model.asked) <= len(undisturbed.asked) + 1, "one answer at most was lost on its way"
        if not killed:
            assert before == len(model.asked), "a search that is over asks nothing"
            break
    else:
        pytest.fail("the search never came to its end")
    assert calls > 15


def test_a_model_that_is_down_ends_the_search_and_the_next_one_goes_on() -> None:
    model, store = ScriptedModel(add_a_word), InMemoryLightningStore()
    model.is_down = True
    with runners(store):
        with pytest.raises(InternalServerError, match="overloaded"):
            asyncio.run(evolution_on(store, model).run())
        model.is_down = False
        best = asyncio.run(evolution_on(store, model).run())
    assert words_in(best.prompt_template.template) == set(WORDS)


def test_a_search_that_is_cancelled_ends_though_no_runner_answers() -> None:
    model, waits = ScriptedModel(add_a_word), asyncio.Event()

    class Store(InMemoryLightningStore):
        async def wait_for_rollouts(self, **named: Any) -> Any:
            waits.set()
            return await super().wait_for_rollouts(**named)

    store = Store()

    async def cancelled() -> None:
        evolution = evolution_on(store, model)
        searching = asyncio.create_task(evolution.run())
        await waits.wait()
        searching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await searching

    asyncio.run(cancelled())  # returns once the search's thread has ended
    assert model.asked == []


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (lambda _prompt: None, "gpt-5-mini answered nothing on v0: no v1."),
        (lambda _prompt: "```\nAnswer {question} as {persona}.\n```", "v1, made of v0, is left out: .*{persona}"),
        (lambda _prompt: "```\nAnswer {question\n```", "v1, made of v0, is left out: "),
    ],
)
def test_an_answer_of_no_use_makes_no_prompt(answer: Callable[[str], str | None], line: str) -> None:
    model, store, lines = ScriptedModel(answer), InMemoryLightningStore(), list[str]()
    with runners(store):
        best = asyncio.run(evolution_on(store, model, say=lines.append).run())
    assert best.prompt_template == SEED
    assert any(re.match(line, one) for one in lines)


def test_what_cannot_be_searched_is_refused_with_a_reason() -> None:
    store, model = InMemoryLightningStore(), ScriptedModel()
    with pytest.raises(TrainingError, match="prompt template 'prompt' cannot be filled in"):
        evolution_on(store, model, seed_prompt=PromptTemplate(template="Answer {question"))
    with pytest.raises(SettingsError, match="max_metric_calls is 4, but one measurement takes 4 rollouts"):
        evolution_on(store, model, GepaOptions(max_metric_calls=4))
    with pytest.raises(SettingsError, match="reflection_minibatch_size is 0; at least 1"):
        agl.GEPA(model.client(), reflection_minibatch_size=0)
    with pytest.raises(ValueError, match="GEPA needs a PromptTemplate to begin with"):
        agl.Trainer(algorithm=agl.GEPA(model.client()), store=store).fit(follower, TASKS, TASKS)
    with runners(store), pytest.raises(TrainingError, match=r"every rollout with the first prompt failed: KeyError"):
        asyncio.run(evolution_on(store, model, seed_prompt=PromptTemplate(template="{unknown}")).run())
    assert model.asked == []
