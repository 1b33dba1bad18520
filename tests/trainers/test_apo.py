"""Prompts optimised on a store in memory, by real HTTP calls of a scripted model."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI, InternalServerError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import lightstream.agl as agl
from lightstream.schemas.errors import SettingsError, TrainingError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import PaginatedResult, PromptTemplate, Span
from lightstream.store_views.stores import InMemoryLightningStore
from lightstream.trainers.algorithms.apo import ApoOptions, PromptSearch

WORDS = ("briefly", "politely", "in French", "with an example")
"""The planted best prompt asks for these."""

SEED = PromptTemplate(template="Answer {question}.")
TASKS = [{"question": f"q{number}"} for number in range(6)]
OPTIONS = ApoOptions(beam_width=2, branch_factor=2, beam_rounds=4, gradient_batch_size=2, val_batch_size=3)


class ScriptedModel:
    """An OpenAI endpoint. As a critic, it names the first word that a template lacks; as an editor, it adds it.

    Attributes:
        asked: the messages of each call.
        is_down: it answers every call with an error.
    """

    def __init__(self, answer: Callable[[str], str | None] | None = None) -> None:
        self.asked: list[str] = []
        self.is_down = False
        self._answer = answer or self.next_word
        app = Starlette(routes=[Route("/v1/chat/completions", self._complete, methods=["POST"])])
        self._transport = httpx.ASGITransport(app)

    def client(self) -> AsyncOpenAI:
        http = httpx.AsyncClient(transport=self._transport)
        return AsyncOpenAI(base_url="http://scripted/v1", api_key="none", http_client=http, max_retries=0)

    @staticmethod
    def next_word(said: str) -> str:
        template = said.partition("<template>\n")[2].partition("\n</template>")[0]
        if "Critique:\n" in said:
            return f"{template} {said.rpartition('Critique:')[2].strip()}"
        return next((word for word in WORDS if word not in template), "nothing")

    async def _complete(self, request: Request) -> JSONResponse:
        body = await request.json()
        said = body["messages"][-1]["content"]
        if self.is_down:
            return JSONResponse({"error": {"message": "overloaded"}}, status_code=503)
        self.asked.append(said)
        message = {"role": "assistant", "content": self._answer(said)}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
        return JSONResponse(
            {"id": "c", "object": "chat.completion", "created": 1, "model": body["model"], "choices": [choice]}
            | {"usage": usage}
        )


@agl.rollout
def follower(task: dict[str, str], prompt_template: PromptTemplate) -> float:
    """Is paid for each word of the planted prompt."""
    prompt = prompt_template.format(**task)
    return sum(word in prompt for word in WORDS) / len(WORDS)


@contextmanager
def runners(store: LightningStore, agent: Any = follower) -> Generator[None]:
    """Two Runners on a store, until the block ends."""
    stop = agl.ThreadingEvent()

    def work(worker_id: int) -> None:
        runner: agl.LitAgentRunner[Any] = agl.LitAgentRunner(poll_interval=0.05)
        with runner.run_context(agent=agent, store=store, worker_id=worker_id):
            asyncio.run(runner.iter(event=stop))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def search_on(
    store: LightningStore, model: ScriptedModel, options: ApoOptions = OPTIONS, **changes: Any
) -> PromptSearch:
    arguments: dict[str, Any] = {
        "resource_name": "prompt",
        "seed_prompt": SEED,
        "train_dataset": TASKS,
        "val_dataset": TASKS[:4],
    }
    return PromptSearch(store, model.client(), options, **(arguments | changes))


def words_in(template: str) -> set[str]:
    return {word for word in WORDS if word in template}


def test_the_planted_prompt_is_found_by_a_program_for_agent_lightning() -> None:
    model, store = ScriptedModel(), InMemoryLightningStore()
    algorithm = agl.APO(
        model.client(), beam_width=2, branch_factor=2, beam_rounds=4, gradient_batch_size=2, val_batch_size=3
    )
    trainer = agl.Trainer(
        algorithm=algorithm,
        n_runners=2,
        store=store,
        initial_resources={"prompt_template": SEED},
        adapter=agl.TraceToMessages(),
    )
    trainer.fit(follower, train_dataset=TASKS, val_dataset=TASKS[:4])
    best = algorithm.get_best_prompt()
    assert words_in(best.template) == set(WORDS)
    assert best.format(question="why") == "Answer why. " + " ".join(WORDS)
    assert len(model.asked) <= 2 * 2 * 2 * 4, "a critique and an edit for each branch of each prompt of each round"
    latest = asyncio.run(store.get_latest_resources())
    assert latest is not None
    assert latest.resources == {"prompt_template": best}, "what the next rollouts are given"


def test_the_calls_of_the_search_are_spans_like_any_other() -> None:
    model, store = ScriptedModel(), InMemoryLightningStore()
    search = search_on(store, model, ApoOptions(beam_width=1, branch_factor=1, beam_rounds=1))
    with runners(store):
        asyncio.run(search.run())
    edits = asyncio.run(store.query_rollouts(rollout_id_contains="-edit"))
    assert [(rollout.status, rollout.input) for rollout in edits] == [
        ("succeeded", {"round": 1, "prompt": "v1", "parent": "v0"})
    ]
    (span,) = asyncio.run(store.query_spans(edits[0].rollout_id))
    (conversation,) = agl.TraceToMessages().adapt([span])
    assert conversation["messages"][-1]["content"] == f"{SEED.template} {WORDS[0]}"
    assert span.attributes["gen_ai.usage.output_tokens"] == 3


class Killed(BaseException):
    """The process ends here."""


class MortalStore(agl.InMemoryLightningStore):
    """Ends the process that searches, at its call of this number, before or after it is done."""

    calls_left = -1
    after = False

    def _step(self) -> None:
        self.calls_left -= 1
        if self.calls_left == 0:
            raise Killed

    async def start_rollout(self, *args: Any, **named: Any) -> Any:
        return await self._mortal(super().start_rollout(*args, **named))

    async def add_many_spans(self, spans: Sequence[Span]) -> Any:
        is_ours = any(span.name.startswith("lightstream.apo.") for span in spans)
        kept = super().add_many_spans(spans)
        return await (self._mortal(kept) if is_ours else kept)

    async def enqueue_many_rollouts(self, rollouts: Any) -> Any:
        return await self._mortal(super().enqueue_many_rollouts(rollouts))

    async def wait_for_rollouts(self, **named: Any) -> Any:
        return await self._mortal(super().wait_for_rollouts(**named))

    async def update_resources(self, resources_id: str, resources: Any) -> Any:
        return await self._mortal(super().update_resources(resources_id, resources))

    async def _mortal(self, call: Any) -> Any:
        if not self.after:
            try:
                self._step()
            except Killed:
                call.close()
                raise
        done = await call
        if self.after:
            self._step()
        return done


def answered(store: LightningStore) -> set[str]:
    """Questions to models whose answers are in the store."""
    kept: set[str] = set()
    for kind in ("-critique", "-edit"):
        rollouts = asyncio.run(store.query_rollouts(rollout_id_contains=kind))
        for rollout in rollouts:
            spans: PaginatedResult[Span] = asyncio.run(store.query_spans(rollout.rollout_id))
            kept.update(str(span.attributes["gen_ai.prompt.1.content"]) for span in spans)
    return kept


@pytest.mark.parametrize("after", [False, True])
def test_killed_anywhere_it_goes_on_and_asks_nothing_again_that_was_answered(after: bool) -> None:
    options = ApoOptions(beam_width=1, branch_factor=1, beam_rounds=2, gradient_batch_size=1, val_batch_size=2)
    undisturbed = ScriptedModel()
    store = InMemoryLightningStore()
    with runners(store):
        expected = asyncio.run(search_on(store, undisturbed, options).run())
    assert words_in(expected.prompt_template.template) == set(WORDS[:2])
    for calls in range(1 + after, 200, 4):
        mortal, model = MortalStore(), ScriptedModel()
        mortal.calls_left, mortal.after = calls, after
        with runners(mortal):
            try:
                asyncio.run(search_on(mortal, model, options).run())
                killed = False
            except Killed:
                killed = True
            mortal.calls_left = -1
            known, before = answered(mortal), len(model.asked)
            best = asyncio.run(search_on(mortal, model, options).run())
        assert best == expected
        assert not known.intersection(model.asked[before:]), f"killed at call {calls}"
        assert len(model.asked) <= len(undisturbed.asked) + 1, "one answer at most was lost on its way"
        if not killed:
            assert before == len(model.asked), "a search that is over asks nothing"
            break
    else:
        pytest.fail("the search never came to its end")
    assert calls > 15


def test_a_model_that_is_down_ends_the_search_and_the_next_one_goes_on() -> None:
    model, store = ScriptedModel(), InMemoryLightningStore()
    model.is_down = True
    with runners(store):
        with pytest.raises(InternalServerError, match="overloaded"):
            asyncio.run(search_on(store, model).run())
        measured = len(asyncio.run(store.query_rollouts(rollout_id_contains="-all0-")))
        model.is_down = False
        best = asyncio.run(search_on(store, model).run())
        assert len(asyncio.run(store.query_rollouts(rollout_id_contains="-all0-"))) == measured
    assert words_in(best.prompt_template.template) == set(WORDS)


def test_a_model_that_answers_nothing_makes_no_prompt() -> None:
    model, store = ScriptedModel(lambda said: None), InMemoryLightningStore()
    lines: list[str] = []
    with runners(store):
        best = asyncio.run(search_on(store, model, say=lines.append).run())
    assert best.prompt_template == SEED
    assert len(model.asked) == 2 * 2 * 4, "no edit without a critique"
    assert "gpt-5-mini answered nothing on v0: no v1." in lines


def test_an_edit_with_an_unknown_placeholder_is_left_out() -> None:
    edits = iter(["Answer {question} as {persona}.", "Answer {question", "Answer {question} briefly."])

    def answer(said: str) -> str | None:
        return next(edits, "Answer {question}.") if "Critique:" in said else "Say it shorter."

    model, store, lines = ScriptedModel(answer), InMemoryLightningStore(), list[str]()
    options = ApoOptions(beam_width=1, branch_factor=3, beam_rounds=1)
    with runners(store):
        best = asyncio.run(search_on(store, model, options, say=lines.append).run())
    assert best.prompt_template.template == "Answer {question} briefly."
    assert any("{persona}" in line for line in lines)
    assert sum("is left out" in line for line in lines) == 2


def test_what_cannot_be_searched_is_refused_with_a_reason() -> None:
    store, model = InMemoryLightningStore(), ScriptedModel()
    with pytest.raises(TrainingError, match="prompt template 'prompt' cannot be filled in"):
        search_on(store, model, seed_prompt=PromptTemplate(template="Answer {question"))
    with pytest.raises(TrainingError, match="no tasks"):
        search_on(store, model, val_dataset=[])
    with pytest.raises(SettingsError, match="beam_width is 0; at least 1"):
        agl.APO(model.client(), beam_width=0)
    with pytest.raises(ValueError, match="PromptTemplate to begin with"):
        agl.Trainer(algorithm=agl.APO(model.client()), store=store).fit(follower, TASKS, TASKS)
    algorithm = agl.APO(model.client())
    trainer = agl.Trainer(algorithm=algorithm, store=store, initial_resources={"p": SEED})
    with pytest.raises(ValueError, match="needs a train_dataset"):
        trainer.fit(follower, TASKS)
    with pytest.raises(ValueError, match="no best prompt yet"):
        algorithm.get_best_prompt()
    with runners(store), pytest.raises(TrainingError, match=r"every rollout with the first prompt failed: KeyError"):
        asyncio.run(search_on(store, model, seed_prompt=PromptTemplate(template="{unknown}")).run())
    assert model.asked == []
