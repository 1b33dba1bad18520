"""The requests by curl on our pages do at a store what the pages say."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread

from lightstream.trainers import InMemoryLightningStore, LightningStoreServer

DOCS = Path(__file__).parents[2] / "docs"
ADDRESS = "http://127.0.0.1:8084"
"""Of the store, on the pages."""

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="the requests are curl's")


def commands(page: str, begin: str) -> list[str]:
    """The commands of the next block after some words of a page; each may go on over several lines."""
    after = (DOCS / page).read_text("utf-8").split(begin)[1]
    block = re.search(r"(?:^    .*\n)+", after, re.MULTILINE)
    assert block is not None
    lines = re.sub(r"^    ", "", block[0], flags=re.MULTILINE)
    return re.split(r"\n(?=\S)(?!\{)", lines.rstrip("\n"))


@pytest.fixture
async def store() -> AsyncIterator[LightningStoreServer]:
    server = LightningStoreServer(InMemoryLightningStore(), host="127.0.0.1", port=0)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def answer(store: LightningStoreServer, *script: str) -> Any:
    """Run commands of a page in one shell, at this store; returns the JSON that they print."""
    text = "\n".join(script).replace(ADDRESS, store.endpoint).replace("curl ", "curl --silent --fail-with-body ")
    done = await to_thread.run_sync(lambda: subprocess.run(["sh", "-ec", text], capture_output=True, check=False))
    assert done.returncode == 0, (done.stdout, done.stderr)
    return json.loads(done.stdout)


async def test_rollouts_are_enqueued_from_any_language(store: LightningStoreServer) -> None:
    enqueue = commands("contract.md", "## Enqueue rollouts")
    made = await answer(store, *enqueue)
    assert [rollout["rollout_id"] for rollout in made] == ["my-run-1-1-1", "my-run-1-1-2"]
    assert await answer(store, *enqueue) == made, "a repeated request changes nothing"
    assert [rollout.status for rollout in await store.query_rollouts()] == ["queuing", "queuing"]


async def test_a_standalone_agent_begins_and_ends_a_rollout(store: LightningStoreServer) -> None:
    names, begin, *_ = commands("otlp.md", "`lightstream store --port 8084`. Then:")
    rollout = await answer(store, names, begin)
    ids = f"ROLLOUT={rollout['rollout_id']} ATTEMPT={rollout['attempt']['attempt_id']}"
    (end,) = (command for command in commands("otlp.md", "Then send the reward") if command.startswith("curl $STORE"))
    await answer(store, names, ids, end)
    (ended,) = await store.query_rollouts()
    assert (ended.rollout_id, ended.status) == (rollout["rollout_id"], "succeeded")
