"""Everything bad at once, beside what is good: each has its own outcome, and the good is not harmed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.responses import Response

from examples.watch import take_account
from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.kafka import KafkaPublisher
from lightstream.runtime.services import discover
from lightstream.runtime.settings import Settings
from lightstream.schemas.topics import SPANS
from lightstream.schemas.types import ProxyLLM, RolloutConfig
from lightstream.store_views.client import ViewClient
from lightstream.trainers import AlgorithmContext, Trainer
from lightstream.up import Stack
from tests.e2e.misbehaving import LARGE_PROMPT_CHARACTERS, misbehave
from tests.producers.llm_proxy.upstreams import ScriptedUpstream, completion

ROOT = Path(__file__).parents[2]
ROLLOUT_TIMEOUT_S = 60.0
LLM_TIMEOUT_S = 20.0
"""Much longer than a large prompt takes on a busy machine, and much shorter than an attempt may take in all."""

UNRESPONSIVE_S = 120.0

GOOD = [f"good {number}" for number in range(8)]
FIRST_ATTEMPT_ENDS: dict[str, tuple[str, str]] = {
    "raises": ("failed", "KeyError"),
    "exits": ("failed", "SystemExit"),
    "is cancelled": ("failed", "CancelledError"),
    "never ends": ("timeout", "Timeout"),
    "LLM answers 500": ("failed", "InternalServerError"),
    "LLM hangs": ("failed", "InternalServerError"),
}
"""Task -> status and error of its first attempt. The second succeeds."""

TASKS = [*FIRST_ATTEMPT_ENDS, "NaN reward", "large prompt", "broken tokens", *GOOD]
SUCCEEDED = ("succeeded", None)

JUNK = (b"hello", b"\xc3\x01" + b"\x07" * 8 + b"of an unknown schema")


def _answer(asked: Any) -> Any:
    said: str = asked["messages"][0]["content"]
    if said == "LLM answers 500 1":
        return Response("out of memory", 500)
    if said == "LLM hangs 1":
        return None
    answer = completion(id=f"chatcmpl-{said[:40]}")
    if said.startswith("broken tokens"):
        answer["choices"][0]["token_ids"] = [7, 8, 9]  # and two log-probabilities
    return answer


@pytest.fixture
def stack(settings: Settings, tmp_path: Path) -> Iterator[Stack]:
    upstream = ScriptedUpstream()
    upstream.answer = _answer
    server = HttpServer(upstream.app, settings, name="upstream", port=0, setting="")
    changes = {"llm_upstream_url": f"{server.start()}/v1", "llm_request_timeout_s": LLM_TIMEOUT_S}
    with Stack(settings.model_copy(update=changes), services=("worker", "view", "proxy")) as stack:
        yield stack
    server.stop()


def _roll_out(settings: Settings, tasks: list[str]) -> None:
    llm = ProxyLLM(endpoint=f"{discover(settings, 'proxy').address}/v1", model="m")

    def all_once(context: AlgorithmContext) -> None:
        context.publish_resources(context.resources_record(0, {"main_llm": llm}))
        context.collect(context.enqueue_step(1, tasks=len(tasks), rollouts_per_task=1))

    config = RolloutConfig(
        timeout_seconds=ROLLOUT_TIMEOUT_S,
        unresponsive_seconds=UNRESPONSIVE_S,
        max_attempts=2,
        retry_condition=["failed", "timeout"],
    )
    Trainer(
        algorithm=all_once,
        settings=settings,
        trainer_id="misbehaving",
        n_runners=1,
        runner_concurrency=len(tasks),
        rollout_config=config,
    ).fit(misbehave, tasks)


def test_each_bad_thing_has_its_outcome_and_harms_nothing_beside_it(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT)  # where the Runner's process finds the agent
    publisher = KafkaPublisher(stack.settings)
    for value in JUNK:
        for key in ("a", "b", "c", "d"):  # whatever partition the rollouts are on, it is not first there
            publisher.publish_encoded(SPANS, key, value).result()
    publisher.close()
    proxy = discover(stack.settings, "proxy").address
    stray = {"model": "m", "messages": [{"role": "user", "content": "of no rollout"}]}
    httpx.post(f"{proxy}/v1/chat/completions", json=stray, timeout=60).raise_for_status()

    _roll_out(stack.settings, TASKS)

    view = ViewClient(stack.settings)
    account = take_account(view)
    attempts = view.query(
        "SELECT json_extract_string(input_json, '$') AS task, status, error_type FROM attempts "
        "JOIN (SELECT rollout_id, input_json FROM rollouts) USING (rollout_id) ORDER BY attempt_sequence"
    ).rows
    found: dict[str, list[tuple[str, str | None]]] = {}
    for task, status, error_type in attempts:
        found.setdefault(task, []).append((status, error_type))
    assert found == {
        task: [FIRST_ATTEMPT_ENDS[task], SUCCEEDED] if task in FIRST_ATTEMPT_ENDS else [SUCCEEDED] for task in TASKS
    }
    assert account.calls["balanced"], account.calls
    assert account.calls["made"] == 1 + len(TASKS) + len(FIRST_ATTEMPT_ENDS)
    assert account.calls["pending"] == 0
    assert account.dead_letters == 4 * len(JUNK)

    rewards = dict(view.query("SELECT json_extract_string(input_json, '$'), reward FROM trajectories WHERE final").rows)
    assert rewards == dict.fromkeys(TASKS, 1.0) | {"NaN reward": None}
    triplets = view.query(
        "SELECT json_extract_string(input_json, '$') AS task, count(*) FROM triplets "
        "JOIN (SELECT rollout_id, input_json FROM rollouts) USING (rollout_id) GROUP BY task"
    ).rows
    assert dict(triplets) == dict.fromkeys(set(TASKS) - {"broken tokens"}, 1)
    dropped = view.query("SELECT is_llm_call, reason, count(*) FROM dropped GROUP BY ALL ORDER BY ALL").rows
    assert [tuple(row) for row in dropped] == [
        (False, "bad_reward", 1),
        (True, "attempt_not_final", len(FIRST_ATTEMPT_ENDS)),
        (True, "logprobs_length_mismatch", 1),
        (True, "no_rollout", 1),
    ]
    sizes = view.query("SELECT max(len(request_json)) FROM llm_calls").scalar()
    assert sizes > LARGE_PROMPT_CHARACTERS, "the large prompt is recorded whole"
    view.close()
