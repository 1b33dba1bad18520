"""Agents that are programs in sh, Node and Go, run by ``lightstream runner --command``. Needs curl, Node and Go."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from lightstream.runtime.http.attempt_keys import attempt_key, attempt_secret
from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.services import discover
from lightstream.runtime.settings import Settings
from lightstream.schemas.types import EnqueueRolloutRequest, ProxyLLM, RolloutConfig
from lightstream.store_views.client import ViewClient
from lightstream.store_views.stores import KafkaLightningStore
from lightstream.up import Stack
from tests.producers.llm_proxy.upstreams import ScriptedUpstream, completion
from tests.support.runs_command import lightstream
from tests.support.waiting import eventually

PROGRAMS = Path(__file__).with_name("command_agents")
ROLLOUTS = 4


@pytest.fixture
def upstream() -> ScriptedUpstream:
    numbers = itertools.count()
    upstream = ScriptedUpstream()
    upstream.answer = lambda _: completion(id=f"chatcmpl-{next(numbers)}")
    return upstream


@pytest.fixture
def stack(settings: Settings, upstream: ScriptedUpstream) -> Iterator[Stack]:
    server = HttpServer(upstream.app, settings, name="upstream", port=0, setting="")
    changes = {"llm_upstream_url": f"{server.start()}/v1"}
    with Stack(settings.model_copy(update=changes), services=("worker", "view", "proxy")) as stack:
        yield stack
    server.stop()


async def enqueue(
    settings: Settings, run_id: str, config: RolloutConfig | None = None, rollouts: int = ROLLOUTS
) -> None:
    proxy = discover(settings, "proxy").address
    store = KafkaLightningStore(settings)
    await store.start()
    try:
        resources = await store.add_resources({"main_llm": ProxyLLM(endpoint=f"{proxy}/v1", model="m")})
        await store.enqueue_many_rollouts(
            [
                EnqueueRolloutRequest(
                    input=number,
                    run_id=run_id,
                    rollout_id=f"{run_id}-{number}",
                    config=config or RolloutConfig(),
                    resources_id=resources.resources_id,
                )
                for number in range(rollouts)
            ]
        )
    finally:
        await store.close()


def test_programs_in_three_languages_are_recorded_once(stack: Stack, tmp_path: Path) -> None:
    subprocess.run(["go", "build", "-o", tmp_path / "agent", PROGRAMS / "agent.go"], check=True, capture_output=True)
    verifier = 'grep -q "^[13]$" "$LIGHTSTREAM_OUTPUT_FILE"'
    commands = {
        "sh": (f"sh {PROGRAMS}/agent.sh",),
        "node": (f"node {PROGRAMS}/agent.mjs",),
        "go": (str(tmp_path / "agent"), "--verifier", verifier),
    }
    for run_id, (command, *options) in commands.items():
        asyncio.run(enqueue(stack.settings, run_id))
        output = lightstream(
            stack.settings, "runner", "--command", command, *options, "--run-id", run_id, "--rollouts", str(ROLLOUTS)
        )
        assert f"{ROLLOUTS} attempts ended, 0 running" in output, output
    view = ViewClient(stack.settings)
    query = "SELECT run_id, rollout_id, call_count, reward FROM trajectories WHERE final"
    expected = {
        (run_id, f"{run_id}-{number}", 1, float(number in (1, 3)) if run_id == "go" else float(number))
        for run_id in commands
        for number in range(ROLLOUTS)
    }
    eventually(lambda: sorted(map(tuple, view.query(query).rows)) == sorted(expected), what="all trajectories")
    calls = "SELECT count(*) FROM triplets WHERE response_token_ids IS NOT NULL"
    assert view.query(calls, "now").scalar() == 3 * ROLLOUTS


async def test_a_key_is_good_for_its_attempt_alone(stack: Stack) -> None:
    proxy = discover(stack.settings, "proxy").address
    secret = attempt_secret(stack.settings)
    key = attempt_key(secret, "r", "a")
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    places = {"rollout/r/attempt/a": 200, "rollout/r/attempt/b": 401, "rollout/s/attempt/a": 401, "v1": 401}
    async with httpx.AsyncClient(base_url=proxy) as client:
        for headers in ({"authorization": f"Bearer {key}"}, {"x-api-key": key}):
            for place, status in places.items():
                answer = await client.post(f"{place}/chat/completions", json=body, headers=headers)
                assert answer.status_code == status, answer.text
                if place != "v1":
                    answer = await client.post(f"{place}/reward", json={"reward": 1, "key": "k"}, headers=headers)
                    assert answer.status_code == status, answer.text
        for wrong in ({}, {"reward": "1"}, {"reward": None}, {"rewards": 1}):
            answer = await client.post("rollout/r/attempt/a/reward", json=wrong, headers={"x-api-key": key})
            assert answer.status_code == 400, wrong
            assert '{"reward": 0.5}' in answer.json()["error"]["message"]


def test_a_command_that_fails_is_explained(stack: Stack) -> None:
    hanging = RolloutConfig(timeout_seconds=1.0)
    for run_id, command, config in (
        ("fails", "echo no such thing >&2; exit 3", None),
        ("hangs", "trap '' TERM; while true; do sleep 1; done", hanging),
        ("odd", 'echo prose > "$LIGHTSTREAM_RESULT_FILE"', None),
    ):
        asyncio.run(enqueue(stack.settings, run_id, config, rollouts=1))
        lightstream(stack.settings, "runner", "--command", command, "--run-id", run_id, "--rollouts", "1")
    ViewClient(stack.settings).wait_for("now")
    for run_id, reason in (
        ("fails", "ended with status 3"),
        ("hangs", "timeout"),
        ("odd", "the result file has no JSON"),
    ):
        assert reason in " ".join(lightstream(stack.settings, "explain", f"{run_id}-0").split())
    kept = sorted(path.name for path in (stack.settings.data_dir / "attempts").iterdir())
    assert kept == ["fails-0", "hangs-0", "odd-0"]
