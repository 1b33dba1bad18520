"""The daemon that feeds a loop on verl: its batches by their definition, and by verl's own functions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from openai import AsyncOpenAI

import lightstream.agl as agl
from lightstream.agl.verl import (
    AgentModeDaemon,
    get_left_padded_ids_and_attention_mask,
    get_right_padded_ids_and_attention_mask,
)
from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError, TrainingError
from tests.frameworks.model_server import Say, ScriptedModel

PAD = 3
PROMPT, RESPONSE = 6, 9

TASKS: list[dict[str, Any]] = [
    {"turns": 2, "reward": 1.0},
    {"turns": 1, "reward": 0.25},
    {"turns": 3, "reward": None},
    {"turns": 1, "reward": "fails"},
    {"turns": 0, "reward": 0.5},
    {"turns": 0, "reward": "fails"},
]
"""How often the agent asks its model, and its reward; ``fails``: it raises at the end."""


@agl.rollout
async def agent(task: dict[str, Any], llm: agl.LLM) -> float | None:
    messages = [{"role": "user", "content": f"task {task['name']}"}]
    async with AsyncOpenAI(base_url=llm.endpoint, api_key="none") as client:
        for _ in range(task["turns"]):
            said = await client.chat.completions.create(model=llm.model, messages=messages)  # type: ignore[arg-type]  # plain dicts
            messages += [
                {"role": "assistant", "content": said.choices[0].message.content or ""},
                {"role": "user", "content": "go on"},
            ]
    if task["reward"] == "fails":
        raise RuntimeError("it fails")
    reward: float | None = task["reward"]
    return reward


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings of a Kafka that is not there."""
    return Settings.load(data_dir=tmp_path, kafka_bootstrap_servers="127.0.0.1:1", proxy_port=0)


@pytest.fixture
def model(settings: Settings) -> Generator[tuple[ScriptedModel, str]]:
    """A model whose answers have other token ids each time, and its address."""
    script = ScriptedModel(lambda request: Say("word " * len(request["messages"])), of_rollouts=False)
    server = HttpServer(script.app, settings, name="upstream", port=0)
    yield script, server.start().removeprefix("http://")
    server.stop()


@contextmanager
def runner(store: agl.LightningStore) -> Generator[None]:
    """A Runner of the agent works inside."""
    stop = agl.ThreadingEvent()

    def work() -> None:
        async def run() -> None:
            with agl.LitAgentRunner[Any](agl.OtelTracer()).run_context(agent=agent, store=store) as made:
                await made.iter(event=stop)

        asyncio.run(run())

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def daemon_of(store: agl.LightningStore, settings: Settings, **options: Any) -> AgentModeDaemon:
    proxy = agl.LLMProxy(port=0, model_list=[], store=store, settings=settings)
    return AgentModeDaemon(
        None,
        2,
        {"model": "m", "temperature": 0.5},
        tokenizer=None,
        mini_batch_size=4,
        pad_token_id=PAD,
        reward_fillna_value=-1.0,
        store=store,
        llm_proxy=proxy,
        **options,
    )


def data_of(tasks: list[dict[str, Any]]) -> dict[str, Any]:
    """Columns, as verl's loaders give them."""
    return {
        "name": np.array([str(number) for number in range(len(tasks))], dtype=object),
        "turns": np.array([task["turns"] for task in tasks]),
        "reward": np.array([task["reward"] for task in tasks], dtype=object),
    }


def asked_for(given: Any) -> str:
    """The name of the task that a request is of."""
    return str(given.request["messages"][0]["content"]).removeprefix("task ")


def test_padding() -> None:
    assert get_left_padded_ids_and_attention_mask([5, 6, 7], 5, PAD) == ([3, 3, 5, 6, 7], [0, 0, 1, 1, 1])
    assert get_left_padded_ids_and_attention_mask([5, 6, 7], 2, PAD) == ([6, 7], [1, 1])
    assert get_left_padded_ids_and_attention_mask([5, 6, 7], 0, PAD) == ([], [])
    assert get_right_padded_ids_and_attention_mask([5, 6, 7], 5, PAD) == ([5, 6, 7, 3, 3], [1, 1, 1, 0, 0])
    assert get_right_padded_ids_and_attention_mask([5, 6, 7], 2, PAD) == ([5, 6], [1, 1])
    assert get_right_padded_ids_and_attention_mask([], 2, PAD) == ([3, 3], [0, 0])


def test_the_batch_of_several_turns_failures_and_missing_rewards(
    settings: Settings, model: tuple[ScriptedModel, str]
) -> None:
    script, address = model
    store = agl.InMemoryLightningStore()
    daemon = daemon_of(store, settings)
    with runner(store):
        daemon.set_up_data_and_server(data_of(TASKS), [address])
        with pytest.raises(TrainingError, match="enqueued as training"):
            daemon.get_test_metrics()
        daemon.run_until_all_finished(verbose=False)
    batch, metrics = daemon.get_train_data_batch(PROMPT, RESPONSE, "cpu")

    # By the definition, row by row, from the model server's own record.
    by_ids = {tuple(given.response_ids[0]): given for given in script.given}
    rows = range(len(batch))
    data_ids, rollout_ids = batch.non_tensor_batch["data_id_list"], batch.non_tensor_batch["rollout_id_list"]
    tasks_seen: list[str] = []
    for row in rows:
        sampled = [int(token) for token in batch.batch["responses"][row]]
        given = next(given for ids, given in by_ids.items() if list(ids)[:RESPONSE] == sampled[: len(ids)])
        ids, prompt = given.response_ids[0], given.prompt_ids
        task = TASKS[int(asked_for(given))]
        tasks_seen.append(asked_for(given))
        reward = task["reward"] if isinstance(task["reward"], float) else -1.0
        kept = min(len(ids), RESPONSE)
        want_responses = ids[:RESPONSE] + [PAD] * (RESPONSE - kept)
        want_prompts = [PAD] * (PROMPT - len(prompt)) + prompt
        want_mask = [0] * (PROMPT - len(prompt)) + [1] * len(prompt) + [1] * kept + [0] * (RESPONSE - kept)
        assert sampled == want_responses
        assert batch.batch["prompts"][row].tolist() == want_prompts
        assert batch.batch["input_ids"][row].tolist() == want_prompts + want_responses
        assert batch.batch["attention_mask"][row].tolist() == want_mask
        positions, seen = [], 0
        for valid in want_mask:
            seen += valid
            positions.append(max(seen - 1, 0))
        assert batch.batch["position_ids"][row].tolist() == positions
        assert batch.batch["response_mask"][row].tolist() == [1] * kept + [0] * (RESPONSE - kept)
        assert batch.batch["token_level_scores"][row].tolist() == [0.0] * (kept - 1) + [reward] + [0.0] * (
            RESPONSE - kept
        )
        assert not batch.batch["is_drop_mask"][row]
    assert sorted(tasks_seen) == sorted(2 * ["0", "0", "1", "2", "2", "2", "3"])
    assert len(script.given) == len(batch), "each call is in one row"
    assert len(set(data_ids)) == 4
    assert len(set(rollout_ids)) == 8
    for rollout_id in set(rollout_ids):
        of_rollout = [row for row in rows if rollout_ids[row] == rollout_id]
        turns = [int(batch.non_tensor_batch["turn_index_list"][row]) for row in of_rollout]
        assert turns == list(range(len(of_rollout)))
        assert len({tasks_seen[row] for row in of_rollout}) == 1
    assert metrics == {
        "training/reward": pytest.approx((1.0 + 0.25 - 1 - 1 - 1 - 1) / 6),
        "training/n_rollouts": 12,
        "training/n_rollouts_w_trace": 8,
        "training/n_rollouts_w_reward": 4,
        "training/n_truncated_triplets": 0,
        "training/n_triplets": 14,
    }

    # By verl's own functions.
    from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage
    from verl.utils.model import compute_position_id_with_mask as positions_of
    from verl.utils.torch_functional import get_response_mask

    by_verl: Any = positions_of
    assert torch.equal(batch.batch["position_ids"], by_verl(batch.batch["attention_mask"]))
    assert torch.equal(
        batch.batch["response_mask"],
        get_response_mask(batch.batch["responses"], PAD) * batch.batch["attention_mask"][:, PROMPT:],
    )
    advantages, _ = compute_grpo_outcome_advantage(
        batch.batch["token_level_scores"], batch.batch["response_mask"], data_ids
    )
    assert torch.isfinite(advantages).all()
    daemon.close()


def test_calls_that_continue_each_other_are_one_row(settings: Settings) -> None:
    """A prompt that begins with all that was said before goes on in the same row, masked."""
    store = agl.InMemoryLightningStore()
    daemon = daemon_of(store, settings, trace_aggregator={"level": "trajectory"})
    daemon.set_up_data_and_server({"name": ["a"]}, ["127.0.0.1:1"])

    async def rolled_out(calls: list[tuple[list[int], list[int]]], reward: float | None) -> None:
        rollout = await store.dequeue_rollout()
        assert rollout is not None
        names = (rollout.rollout_id, rollout.attempt.attempt_id)
        for number, (prompt, response) in enumerate(calls, start=1):
            attributes = {
                "gen_ai.response.id": f"{rollout.rollout_id}-{number}",
                "llm.hosted_vllm.prompt_token_ids": str(prompt),
                "llm.hosted_vllm.choices": str([{"token_ids": response}]),
            }
            await store.add_span(span(*names, number, "raw_gen_ai_request", attributes))
        if reward is not None:
            told = {"agentlightning.reward.0.name": "primary", "agentlightning.reward.0.value": reward}
            await store.add_span(span(*names, 99, "agentlightning.annotation", told))
        await store.update_attempt(*names, status="succeeded")

    asyncio.run(rolled_out([([1, 2], [11, 12]), ([1, 2, 11, 12, 4], [13]), ([1, 9], [14])], 0.5))
    asyncio.run(rolled_out([([1, 2, 5, 6, 7, 8, 9], [11])], None))
    daemon.run_until_all_finished(verbose=False)
    batch, metrics = daemon.get_train_data_batch(4, 3, "cpu")
    assert batch.batch["prompts"].tolist() == [[3, 3, 1, 2], [3, 3, 1, 9], [1, 2, 5, 6]]
    assert batch.batch["responses"].tolist() == [[11, 12, 4], [14, 3, 3], [11, 3, 3]]
    assert batch.batch["response_mask"].tolist() == [[1, 1, 0], [1, 0, 0], [1, 0, 0]]
    assert batch.batch["token_level_scores"].tolist() == [[0, 0, 0.5], [0.5, 0, 0], [-1, 0, 0]]
    assert batch.batch["is_drop_mask"].tolist() == [False, False, True]
    assert metrics["training/n_truncated_triplets"] == 1
    daemon.close()


def span(rollout_id: str, attempt_id: str, number: int, name: str, attributes: dict[str, Any]) -> agl.Span:
    return agl.Span.from_attributes(
        rollout_id=rollout_id, attempt_id=attempt_id, sequence_id=number, name=name, attributes=attributes
    )


def test_a_validation_has_means_over_all_and_by_source(settings: Settings, model: tuple[ScriptedModel, str]) -> None:
    _, address = model
    store = agl.InMemoryLightningStore()
    daemon = daemon_of(store, settings)
    data: dict[str, Any] = data_of(TASKS[:4]) | {"data_source": np.array(["x", "y", "y", "x"], dtype=object)}
    with runner(store):
        daemon.set_up_data_and_server(data, [address], is_train=False)
        daemon.run_until_all_finished()
    metrics = daemon.get_test_metrics()
    assert {name: metrics[f"val/{name}"] for name in ("n_rollouts", "n_rollouts_w_trace", "n_rollouts_w_reward")} == {
        "n_rollouts": 4,
        "n_rollouts_w_trace": 4,
        "n_rollouts_w_reward": 2,
    }
    assert metrics["val/reward"] == pytest.approx((1 + 0.25 - 1 - 1) / 4)
    assert metrics["val/turn_count"] == pytest.approx((2 + 1 + 3 + 1) / 4)
    assert metrics["val/y/reward"] == pytest.approx((0.25 - 1) / 2)
    rollouts = asyncio.run(store.query_rollouts())
    assert {rollout.mode for rollout in rollouts} == {"val"}
    with pytest.raises(TrainingError, match="enqueued as a validation"):
        daemon.get_train_data_batch(1, 1, "cpu")
    daemon.close()


def test_what_it_cannot_do_is_named(settings: Settings) -> None:
    store = agl.InMemoryLightningStore()
    with pytest.raises(SettingsError, match="mode is 'v0'"):
        daemon_of(store, settings, mode="v0")
    with pytest.raises(SettingsError, match="level is 'word'"):
        daemon_of(store, settings, trace_aggregator={"level": "word"})
    daemon = daemon_of(store, settings)
    with pytest.raises(SettingsError, match="columns of one length"):
        daemon.set_up_data_and_server({"a": [1], "b": [1, 2]}, [])
    daemon.set_up_data_and_server({"a": [1]}, ["127.0.0.1:1"])
    with pytest.raises(TrainingError, match="2 of 2 rollouts are not over"):
        daemon.get_train_data_batch(1, 1, "cpu")
    daemon.close()
