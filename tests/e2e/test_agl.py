"""Agents that were written for Agent Lightning, after one import was changed, through the whole system."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lightstream.agl as agl
from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.services import discover
from lightstream.runtime.settings import Settings
from lightstream.store_views.client import ViewClient
from lightstream.trainers import AlgorithmContext
from lightstream.up import Stack
from tests.e2e.agl_agent import Calculator, describe
from tests.producers.llm_proxy.upstreams import ScriptedUpstream, completion
from tests.trainers.test_apo import SEED, WORDS, ScriptedModel

ROOT = Path(__file__).parents[2]
TASKS = [{"question": f"{number} + {number}?", "answer": "aa" if number % 2 else "b"} for number in range(4)]


@pytest.fixture
def stack(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    monkeypatch.syspath_prepend(ROOT)  # where the Runner's process finds the agent
    numbers = itertools.count()
    upstream = ScriptedUpstream()
    upstream.answer = lambda _: completion(id=f"chatcmpl-{next(numbers)}")
    server = HttpServer(upstream.app, settings, name="upstream", port=0, setting="")
    changes = {"llm_upstream_url": f"{server.start()}/v1"}
    with Stack(settings.model_copy(update=changes), services=("worker", "view", "proxy")) as stack:
        yield stack
    server.stop()


def train(stack: Stack, name: str, agent: agl.LitAgent[Any], tasks: list[Any]) -> None:
    resources: agl.NamedResources = {
        "main_llm": agl.ProxyLLM(endpoint=f"{discover(stack.settings, 'proxy').address}/v1", model="m"),
        "prompt": agl.PromptTemplate(template="What is {question}", engine="f-string"),
    }

    @agl.algo
    def once(context: AlgorithmContext) -> None:
        context.publish_resources(context.resources_record(0, resources))
        context.collect(context.enqueue_step(1, tasks=len(tasks), rollouts_per_task=1))

    agl.Trainer(algorithm=once, settings=stack.settings, n_runners=1, trainer_id=name).fit(agent, tasks)


def test_a_class_with_several_rewards_and_a_function(stack: Stack) -> None:
    train(stack, "class", Calculator(), TASKS)
    train(stack, "function", describe, ["a", "b"])
    view = ViewClient(stack.settings)
    view.wait_for("now")  # the trainer has what it waited for; the view may not have read it yet
    rewards = view.query(
        "SELECT json_extract_string(input_json, '$.answer') AS wanted, trajectories.reward, count(*) "
        "FROM trajectories WHERE final AND run_id = 'class' GROUP BY ALL ORDER BY ALL"
    ).rows
    assert [tuple(row) for row in rewards] == [("aa", 1.0, 2), ("b", 0.0, 2)]
    told = view.query(
        "SELECT name, dimension, match, call_index, count(*), sum(value) FROM rewards WHERE run_id = 'class' "
        "GROUP BY ALL ORDER BY ALL"
    ).rows
    assert [tuple(row) for row in told] == [
        ("brief", 1, "trajectory", None, 4, 2.0),
        ("primary", 0, "link", 0, 4, 1.0),
        ("right", 0, "trajectory", None, 4, 2.0),
    ]
    names = view.query(
        "SELECT name, count(*) FROM spans WHERE name LIKE 'agentlightning.%' GROUP BY name ORDER BY name"
    )
    assert [tuple(row) for row in names.rows] == [
        ("agentlightning.annotation", 10),
        ("agentlightning.message", 4),
        ("agentlightning.object", 4),
        ("agentlightning.operation", 4),
    ]
    returned = view.query("SELECT reward FROM trajectories WHERE final AND run_id = 'function'").rows
    assert [row[0] for row in returned] == [0.75, 0.75]
    view.close()


@agl.rollout
def short_answers(task: dict[str, str], prompt_template: agl.PromptTemplate) -> float:
    """Is paid for what its prompt asks for."""
    prompt = prompt_template.format(**task)
    return sum(word in prompt for word in WORDS) / len(WORDS)


def test_a_search_for_prompts_and_its_tree_in_sql(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in stack.settings.to_environment().items():
        monkeypatch.setenv(name, value)
    model = ScriptedModel()
    algorithm = agl.APO(model.client(), beam_width=1, branch_factor=2, beam_rounds=4, val_batch_size=2)
    trainer = agl.Trainer(algorithm=algorithm, n_runners=2, initial_resources={"prompt_template": SEED})
    tasks = [{"question": f"q{number}"} for number in range(3)]
    trainer.fit(short_answers, train_dataset=tasks, val_dataset=tasks)
    assert algorithm.get_best_prompt().template == " ".join([SEED.template, *WORDS])
    asked = len(model.asked)
    again = agl.APO(model.client(), beam_width=1, branch_factor=2, beam_rounds=4, val_batch_size=2)
    agl.Trainer(algorithm=again, n_runners=1, initial_resources={"prompt_template": SEED}).fit(
        short_answers, train_dataset=tasks, val_dataset=tasks
    )
    assert again.get_best_prompt() == algorithm.get_best_prompt()
    assert len(model.asked) == asked, "it was over"
    page = (ROOT / "docs" / "prompts.md").read_text("utf-8")
    view = ViewClient(stack.settings)
    view.wait_for("now")
    rows = view.query(page.partition("```sql\n")[2].partition("```")[0]).rows
    assert [row[2] for row in rows] == [1.0, 0.75, 0.5, 0.25, 0.0]
    tree = {row[0]: row[1] for row in rows}
    path = [rows[0][0]]
    while (parent := tree[path[-1]]) is not None:
        path.append(parent)
    assert path == [row[0] for row in rows], "each was made of the one before"
    assert {row[3] for row in rows} == {3}, "the best of each round is measured on all tasks"
