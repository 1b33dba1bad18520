"""Answers under way when new weights come: finished by the old version (drain), or gone on with by the new one.

``python -m benchmarks.swaps`` prints a table, and with ``--json`` one JSON object. Uses the cluster named by
``LIGHTSTREAM_KAFKA_BOOTSTRAP_SERVERS``, or a broker of its own. A policy server and a proxy for each of
``LIGHTSTREAM_POLICY_SWAP``'s values, each a process. ``agents`` agents ask for ``answers`` answers of at most 40 to 400
tokens, spread evenly over the logarithm, again as soon as they have one, while a version is published every
``update_ms``. The three take turns, ``rounds`` times; ratios are of tokens in the same round, per second, and per
second of the policy server's processor time, which other load on the machine changes less. Target: ``continue`` makes
1.12 times the tokens of ``drain``.
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import aiohttp
from confluent_kafka import Producer
from pydantic_core import to_json

from lightstream.runtime.kafka import producer_config
from lightstream.runtime.settings import Settings
from lightstream.schemas.codec import Codec
from lightstream.schemas.records import ResourcesRecord
from lightstream.schemas.topics import RESOURCES
from lightstream.trainers.run.model.tiny_model import make_tiny_model

from .cluster import cluster
from .command import run
from .proxy import RUN_PROXY, Server, process

Swap: TypeAlias = Literal["drain", "keep", "continue"]
SHORTEST, SPREAD = 40, 10
FOLDERS = 4
"""Versions take turns with these weights; writing them is no part of what is measured."""

RUN_POLICY = (
    "import sys; from pathlib import Path; from lightstream.runtime.settings import Settings as S; "
    "from lightstream.trainers.servers.cpu import run; run(S.load(), checkpoint=Path(sys.argv[1]))"
)


class _Side:
    """A policy server and its proxy, with topics of their own."""

    def __init__(self, settings: Settings, folders: list[Path], stack: ExitStack) -> None:
        self._folders = folders
        self._topic = RESOURCES.full_name(settings.topic_prefix)
        self._producer = Producer(producer_config(settings))
        self._version = 0
        self._policy: Server = stack.enter_context(process(settings, "policy", RUN_POLICY, str(folders[0])))
        self._proxy: Server = stack.enter_context(process(settings, "proxy", RUN_PROXY))

    async def tokens_per_s(self, agents: int, answers: int, update_ms: int) -> tuple[float, float]:
        """Of the answers of one round: tokens per second, and per second of the policy server's processor time."""
        chance = random.Random(0)  # the same lengths in every round
        left = iter([round(SHORTEST * SPREAD ** chance.random()) for _ in range(answers)])
        tokens = 0
        began_s, began_cpu_s = time.perf_counter(), self._policy.cpu_s()
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

            async def work() -> None:
                nonlocal tokens
                for tokens_max in left:
                    body = {"model": "policy", "max_tokens": tokens_max, "seed": tokens_max}
                    body |= {"messages": [{"role": "user", "content": "Tell me a long story."}]}
                    url = f"{self._proxy.url}/rollout/r/attempt/a/v1/chat/completions"
                    async with session.post(url, data=to_json(body)) as response:
                        answer = await response.json()
                    assert response.status == 200, answer
                    tokens += answer["usage"]["completion_tokens"]

            updates = asyncio.create_task(self._update(update_ms / 1000))
            await asyncio.gather(*(work() for _ in range(agents)))
            updates.cancel()
        return tokens / (time.perf_counter() - began_s), tokens / (self._policy.cpu_s() - began_cpu_s)

    async def _update(self, interval_s: float) -> None:
        while True:
            await asyncio.sleep(interval_s)
            self._version += 1
            record = ResourcesRecord(
                resources_id=f"v{self._version}",
                version=self._version,
                model=f"policy@{self._version}",
                checkpoint_url=str(self._folders[self._version % FOLDERS]),
                created_unix_nano=time.time_ns(),
            )
            self._producer.produce(self._topic, Codec().encode(record), key=record.resources_id)
            self._producer.poll(0)


def measure(
    *, rounds: int = 5, agents: int = 32, answers: int = 160, update_ms: int = 3000, layers: int = 2
) -> dict[str, float]:
    """All figures: tokens per second, and ratios to those of ``drain``."""
    figures: dict[str, float] = {}
    rates: dict[Swap, list[tuple[float, float]]] = {swap: [] for swap in get_args(Swap)}
    with cluster() as kafka, ExitStack() as stack:
        folders = [
            make_tiny_model(kafka.data_dir / str(seed), seed=seed, hidden_size=32 * layers, layers=layers)
            for seed in range(FOLDERS)
        ]
        sides: dict[Swap, _Side] = {
            swap: _Side(kafka.settings(folder=swap, policy_swap=swap), folders, stack) for swap in rates
        }
        for side in sides.values():
            asyncio.run(side.tokens_per_s(agents, agents, update_ms))  # warm up
        for number in range(rounds):
            turns = list(sides)[number % len(sides) :] + list(sides)[: number % len(sides)]
            for swap in turns:
                rates[swap].append(asyncio.run(sides[swap].tokens_per_s(agents, answers, update_ms)))
    for place, name in enumerate(("s", "cpu_s")):
        for swap, values in rates.items():
            figures[f"{swap}_tokens_per_{name}"] = statistics.median(value[place] for value in values)
            if swap != "drain":
                pairs = zip(values, rates["drain"], strict=True)
                ratios = sorted(rate[place] / drain[place] for rate, drain in pairs)
                figures[f"{swap}_over_drain_per_{name}"] = statistics.median(ratios)
                figures[f"{swap}_over_drain_per_{name}_min"] = ratios[0]
                figures[f"{swap}_over_drain_per_{name}_max"] = ratios[-1]
    return figures | {"load_average": os.getloadavg()[0]}


def main() -> None:
    """Measure and print."""
    run(__doc__, measure, rounds=5, agents=32, answers=160, update_ms=3000, layers=2)


if __name__ == "__main__":
    main()
