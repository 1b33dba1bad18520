"""Traces that others recorded, by the command line into a running system: trajectories as of agents that ran here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.watch import take_account
from lightstream.runtime.settings import Settings
from lightstream.store_views.client import ViewClient
from lightstream.up import Stack
from tests.support.waiting import eventually

SAMPLES = Path(__file__).parents[1] / "store_views" / "imports" / "samples"
PHOENIX = "b73f616fba9f752bf3982a8bf7303a43"
LANGFUSE = "4bf92f3577b34da6a3ce929d0e0e4736"
FIRST, SECOND = [[11, 12, 13], [21, 22]], [[11, 12, 13, 21, 22, 31], [41, 42, 43]]


@pytest.fixture
def stack(settings: Settings) -> Iterator[Stack]:
    with Stack(settings, services=("worker", "view")) as stack:
        yield stack


def imported(settings: Settings, run_id: str, *arguments: str) -> str:
    """What ``lightstream import`` says."""
    done = subprocess.run(
        [sys.executable, "-m", "lightstream.cli", "import", *arguments, "--run-id", run_id],
        env=os.environ | settings.to_environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def otlp(path: Path) -> Path:
    """As a collector's file exporter writes it: a reward behind two calls, of which one has no token ids."""

    def ids(*values: int) -> dict[str, Any]:
        return {"arrayValue": {"values": [{"intValue": str(value)} for value in values]}}

    def attributes(**values: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"key": name.replace("__", "."), "value": value} for name, value in values.items()]

    told = attributes(
        gen_ai__operation__name={"stringValue": "chat"}, prompt_token_ids=ids(1, 2), response_token_ids=ids(3)
    )
    untold = attributes(gen_ai__operation__name={"stringValue": "chat"})
    reward = attributes(agentlightning__reward__0__value={"doubleValue": 0.5})
    spans = [
        {"traceId": "1" * 32, "spanId": f"{number:016x}", "name": name, "attributes": of_span}
        for number, (name, of_span) in enumerate([("chat", told), ("chat", untold), ("reward", reward)], start=1)
    ]
    path.write_text("\n".join(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [s]}]}]}) for s in spans))
    return path


def test_imported_traces_become_trajectories(stack: Stack, tmp_path: Path) -> None:
    settings = stack.settings
    files = [
        str(otlp(tmp_path / "otlp.jsonl")),
        str(SAMPLES / "phoenix_client.jsonl"),
        str(SAMPLES / "atif_harbor.json"),
    ]
    assert "3 rollouts" in imported(settings, "history", *files)
    assert "1 rollouts" in imported(settings, "history", str(SAMPLES / "langfuse_trace.json"), "--score", "right")
    assert "0 rollouts" in imported(settings, "history", *files), "again it adds nothing"

    view = ViewClient(settings)
    eventually(lambda: view.query("SELECT count(*) FROM trajectories", "now").scalar() == 4, what="4 trajectories")
    account = take_account(view)
    trajectories = view.query("SELECT rollout_id, reward, run_id, final FROM trajectories ORDER BY rollout_id").dicts()
    rewards = {row["rollout_id"].removeprefix("history-"): row["reward"] for row in trajectories}
    atif = next(trace_id for trace_id in rewards if trace_id not in ("1" * 32, PHOENIX, LANGFUSE))
    assert rewards == {"1" * 32: 0.5, PHOENIX: None, LANGFUSE: 1.0, atif: 1.0}
    assert {(row["run_id"], row["final"]) for row in trajectories} == {("history", True)}
    given: dict[str, list[float | None]] = {}
    calls: dict[str, list[Any]] = {trace_id: [] for trace_id in rewards}
    for row in view.query("SELECT * FROM triplets ORDER BY rollout_id, call_index").dicts():
        calls[row["rollout_id"].removeprefix("history-")].append([row["prompt_token_ids"], row["response_token_ids"]])
        given.setdefault(row["rollout_id"].removeprefix("history-"), []).append(row["reward"])
    assert given[PHOENIX] == [None, 1.0], "its annotation is of the second call"
    assert calls == {
        "1" * 32: [[[1, 2], [3]]],
        PHOENIX: [FIRST, SECOND],
        LANGFUSE: [SECOND],
        atif: [FIRST, SECOND, [[51, 52], [61]]],
    }
    dropped = view.query("SELECT rollout_id, reason FROM dropped WHERE is_llm_call ORDER BY ALL").rows
    assert [(rollout_id.removeprefix("history-"), reason) for rollout_id, reason in dropped] == [
        ("1" * 32, "no_token_ids"),
        (LANGFUSE, "no_token_ids"),
    ]
    assert account.calls["balanced"], account.calls
    assert account.dead_letters == 0
    view.close()
