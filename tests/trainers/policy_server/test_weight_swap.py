"""New weights arrive through Kafka while requests are under way: none is dropped, none is mixed."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import torch
from confluent_kafka import Producer

from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.kafka import producer_config
from lightstream.runtime.settings import Settings
from lightstream.schemas.codec import Codec
from lightstream.schemas.records import ResourcesRecord
from lightstream.schemas.topics import RESOURCES
from lightstream.trainers.servers.cpu import policy_server
from lightstream.trainers.servers.cpu.policy_version import PolicyVersion, Versions
from tests.support.waiting import eventually
from tests.trainers.policy_server.support import reference_logprobs

TOLERANCE = 1e-4
KAFKA_TIMEOUT_S = 120.0


class Announcer:
    """Writes versions as a trainer does: in Kafka transactions."""

    def __init__(self, settings: Settings) -> None:
        self._topic = RESOURCES.full_name(settings.topic_prefix)
        self._codec = Codec()
        self._producer = Producer(producer_config(settings) | {"transactional.id": settings.topic_prefix})
        self._producer.init_transactions(KAFKA_TIMEOUT_S)

    def announce(self, version: int, folder: Path, *, run_id: str = "run", commits: bool = True) -> None:
        record = ResourcesRecord(
            resources_id=f"{run_id}-v{version}",
            version=version,
            run_id=run_id,
            model=f"policy@{version}",
            checkpoint_url=str(folder),
            created_unix_nano=time.time_ns(),
        )
        self._producer.begin_transaction()
        self._producer.produce(self._topic, self._codec.encode(record), key=record.resources_id)
        if commits:
            self._producer.commit_transaction(KAFKA_TIMEOUT_S)
        else:
            self._producer.flush(KAFKA_TIMEOUT_S)
            self._producer.abort_transaction(KAFKA_TIMEOUT_S)


@contextmanager
def _serving(settings: Settings, checkpoint: Path | None = None, run_id: str = "") -> Generator[HttpServer]:
    server = policy_server(settings, checkpoint=checkpoint, run_id=run_id)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def _names(server: HttpServer) -> list[str]:
    names: list[str] = httpx.get(f"{server.url}/healthz", timeout=60).json()["versions"]
    return names


def test_swaps_under_load_neither_drop_nor_mix_requests(settings: Settings, checkpoints: list[Path]) -> None:
    answers: list[Any] = []

    async def load(url: str, announcer: Announcer) -> None:
        swapping = True
        client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)

        async def ask(number: int) -> None:
            while swapping:
                answers.append(
                    await client.chat.completions.create(
                        model="policy",
                        messages=[{"role": "user", "content": f"number {number}"}],
                        max_tokens=6 + number,
                        logprobs=True,
                        extra_body={"return_token_ids": True},
                    )
                )

        askers = [asyncio.ensure_future(ask(number)) for number in range(8)]
        for version in range(1, 9):
            await asyncio.to_thread(announcer.announce, version, checkpoints[version % 4])
            seen = len(answers)
            while not any(a.model == f"policy@{version}" for a in answers[seen:]):
                assert not any(asker.done() for asker in askers), "a request failed"
                await asyncio.sleep(0.01)
        swapping = False
        await asyncio.gather(*askers)

    with _serving(settings, checkpoints[0]) as server:
        asyncio.run(asyncio.wait_for(load(server.url, Announcer(settings)), 240))
    versions = {answer.model for answer in answers}
    assert versions >= {f"policy@{version}" for version in range(1, 9)}
    for answer in answers:
        choice = answer.choices[0]
        folder = checkpoints[int(answer.model.partition("@")[2]) % 4]
        expected = reference_logprobs(folder, answer.prompt_token_ids, choice.token_ids)
        said = torch.tensor([entry.logprob for entry in choice.logprobs.content])
        assert torch.allclose(said, expected, atol=TOLERANCE, rtol=0), answer.model


def test_a_request_waits_for_a_version_that_is_announced_later(
    settings: Settings, checkpoints: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    announcer = Announcer(settings)
    asked_in_vain = threading.Event()
    acquire = Versions.acquire

    def watched(versions: Versions, name: str) -> PolicyVersion | None:
        found = acquire(versions, name)
        if name == "policy@5" and found is None:
            asked_in_vain.set()
        return found

    monkeypatch.setattr(Versions, "acquire", watched)

    async def ask_before_it_is_there(url: str) -> str:
        client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        asking = asyncio.ensure_future(
            client.chat.completions.create(model="policy@5", messages=[{"role": "user", "content": "hi"}], max_tokens=1)
        )
        assert await asyncio.to_thread(asked_in_vain.wait, KAFKA_TIMEOUT_S)
        assert not asking.done()
        await asyncio.to_thread(announcer.announce, 5, checkpoints[1])
        return (await asking).model

    with _serving(settings) as server:
        assert _names(server) == []
        assert asyncio.run(ask_before_it_is_there(server.url)) == "policy@5"


def test_a_restarted_server_finds_its_versions_again(settings: Settings, checkpoints: list[Path]) -> None:
    announcer = Announcer(settings)
    for version in range(3):
        announcer.announce(version, checkpoints[version])
    for _ in range(2):
        with _serving(settings) as server:
            eventually(lambda: "policy@2" in _names(server))  # called at once
            client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
            for name, version in (("policy", 2), ("policy@0", 0)):
                answer = client.chat.completions.create(
                    model=name, messages=[{"role": "user", "content": "hi"}], max_tokens=1
                )
                assert answer.model == f"policy@{version}"


def test_aborted_foreign_and_broken_versions_are_not_served(
    settings: Settings, checkpoints: list[Path], tmp_path: Path
) -> None:
    announcer = Announcer(settings)
    plain = Producer(producer_config(settings))
    with _serving(settings, checkpoints[0], run_id="run") as server:
        announcer.announce(1, checkpoints[1], commits=False)
        announcer.announce(2, checkpoints[2], run_id="another run")
        plain.produce(RESOURCES.full_name(settings.topic_prefix), b"not a record", key="x")
        assert plain.flush(300) == 0
        announcer.announce(3, tmp_path / "nowhere")
        announcer.announce(4, checkpoints[3])
        eventually(lambda: "policy@4" in _names(server))
        assert _names(server) == ["policy", "policy@4", "policy@0"]
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
        with pytest.raises(openai.InternalServerError, match="nowhere"):
            client.chat.completions.create(model="policy@3", messages=[{"role": "user", "content": "hi"}], max_tokens=1)
