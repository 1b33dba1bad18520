"""The command ``agl``, metrics of one's own, and the parts for Agent-OS."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

import lightstream.agl as agl
from lightstream.agl.cli import main
from lightstream.agl.contrib.adapter.agentos import FlightRecorderAdapter
from lightstream.agl.contrib.reward.agentos import PolicyReward
from lightstream.agl.utils.metrics import ConsoleMetricsBackend, MultiMetricsBackend, PrometheusMetricsBackend
from lightstream.producers.policy import PolicyViolation
from tests.support.waiting import eventually


@contextmanager
def running(*arguments: str, folder: Path, **environment: str) -> Generator[str]:
    """``agl`` with these arguments, on any port; gives its address once it is there. It must end with 0."""
    log = folder / "log"
    with log.open("w") as written:
        process = subprocess.Popen(
            [sys.executable, "-m", "lightstream.agl.cli", *arguments, "--port", "0"],
            stdout=written,
            stderr=subprocess.STDOUT,
            env=os.environ | {"LIGHTSTREAM_DATA_DIR": str(folder), **environment},
        )
        try:
            eventually(lambda: process.poll() is not None or _address_in(log))
            assert process.poll() is None, log.read_text()
            yield _address_in(log)
            process.send_signal(signal.SIGINT)
            assert process.wait(120) == 0, log.read_text()
        finally:
            process.kill()


def _address_in(log: Path) -> str:
    """The address that the command says it answers on; empty while it says none."""
    found = re.search(r"on (http://[\d.]+:\d+)", log.read_text())
    return found[1] if found else ""


async def test_a_store_by_itself_counts_its_calls(tmp_path: Path) -> None:
    with running("store", "--host", "127.0.0.1", "--tracker", "prometheus", "console", folder=tmp_path) as url:
        store = agl.LightningStoreClient(url)
        rollout = await store.enqueue_rollout("task")
        assert (await store.query_rollouts())[0].rollout_id == rollout.rollout_id
        await store.close()
        async with httpx.AsyncClient() as client:
            told = (await client.get(f"{url}/metrics")).text
    assert 'agl_store_total{method="query_rollouts",status="OK",store_pubmeth="query_rollouts"} 1.0' in told
    assert "agl_store_latency_bucket" in told


async def test_the_metrics_of_other_processes(tmp_path: Path) -> None:
    folder = tmp_path / "metrics"
    folder.mkdir()
    counting = "from prometheus_client import Counter; Counter('things', 'Things.').inc(3)"
    environment = {"PROMETHEUS_MULTIPROC_DIR": str(folder)}
    other = await asyncio.create_subprocess_exec(sys.executable, "-c", counting, env=os.environ | environment)
    assert await other.wait() == 0
    with running("prometheus", "--host", "127.0.0.1", "--metrics-path", "/m/", folder=tmp_path, **environment) as url:
        async with httpx.AsyncClient(follow_redirects=True) as client:
            assert (await client.get(f"{url}/health")).json() == {"status": "ok"}
            assert "things_total 3.0" in (await client.get(f"{url}/m")).text


async def test_what_agentops_clients_ask(tmp_path: Path) -> None:
    with running("agentops", folder=tmp_path) as url:
        async with httpx.AsyncClient() as client:
            assert (await client.post(f"{url}/v3/auth/token")).json() == {"token": "none", "project_id": "none"}
            assert (await client.post(f"{url}/v1/traces")).status_code == 200


@pytest.fixture
def own_logging() -> Iterator[None]:
    """Take back what a command does to the loggers of its process."""
    ours = logging.getLogger("lightstream")
    handlers, level, propagate = ours.handlers[:], ours.level, ours.propagate
    yield
    ours.handlers[:], ours.propagate = handlers, propagate
    ours.setLevel(level)


@pytest.mark.usefixtures("own_logging")
def test_the_command_names_what_it_cannot_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", "--backend", "mongo"]) == 1
    assert main(["store", "--n-workers", "2"]) == 1
    assert main(["prometheus"]) == 1
    assert main(["vllm", "serve"]) == 1
    told = capsys.readouterr().err.splitlines()
    for line, words in zip(
        told,
        ["no store on MongoDB", "one process serves a store", "PROMETHEUS_MULTIPROC_DIR", "vLLM is not installed"],
        strict=True,
    ):
        assert words in line
    with pytest.raises(SystemExit):
        main(["store", "--no-such-option"])


async def test_metrics_of_ones_own(caplog: pytest.LogCaptureFixture) -> None:
    from prometheus_client import REGISTRY

    console = ConsoleMetricsBackend(window_seconds=None, log_interval_seconds=0.0, group_level=1)
    both = MultiMetricsBackend([console, PrometheusMetricsBackend()])
    assert both.has_prometheus()
    for _ in range(2):  # again changes nothing
        both.register_counter("own.calls", ["path", "status"])
        both.register_histogram("own.seconds", ["path"], buckets=[0.1, 1.0])
    with pytest.raises(ValueError, match=r"own\.calls is registered already, as a counter"):
        both.register_histogram("own.calls")
    with pytest.raises(ValueError, match=r"no counter 'own\.none' is registered"):
        await both.inc_counter("own.none")
    with pytest.raises(ValueError, match=r"needs a value for the labels \['status'\]"):
        await both.inc_counter("own.calls", labels={"path": "/"})
    with pytest.raises(ValueError, match="at least one backend"):
        MultiMetricsBackend([])
    with caplog.at_level(logging.INFO, "lightstream.agl.utils.metrics"):
        for status, seconds in (("200", 0.05), ("200", 0.5), ("500", 2.0)):
            await both.inc_counter("own.calls", labels={"path": "/a", "status": status})
            await both.observe_histogram("own.seconds", seconds, labels={"path": "/a"})
    assert "own.calls{path=/a} 3.00/s" in caplog.messages[-1]
    assert "own.seconds{path=/a} 3.00/s, p50 500.00 ms, p95 1.85 s, p99 1.97 s" in caplog.messages[-1]
    assert REGISTRY.get_sample_value("own_calls_total", {"path": "/a", "status": "200"}) == 2
    assert REGISTRY.get_sample_value("own_seconds_bucket", {"path": "/a", "le": "1.0"}) == 2


def test_policy_violations_cost() -> None:
    kernel: Any = SimpleNamespace()
    reward = PolicyReward(kernel, base_reward_fn=lambda _: 3.0, low_penalty=-2.0)
    low = PolicyViolation("p", "d", "low", blocked=False)
    odd = PolicyViolation("p", "d", "odd", blocked=False)
    assert reward(SimpleNamespace(violations=[]), emit=False) == 8.0
    assert reward(SimpleNamespace(violations=[low, odd]), emit=False) == 3.0 - 2.0 - 10.0
    assert reward.get_stats() == {"total_rewards": 2, "avg_penalty": -6.0}
    assert PolicyReward(kernel)(SimpleNamespace(success=True), emit=False) == 6.0
    store, tracer = agl.InMemoryLightningStore(), agl.OtelTracer()
    rollout = asyncio.run(store.start_rollout("task"))
    with (
        tracer.lifespan(store),
        tracer.trace_context(rollout_id=rollout.rollout_id, attempt_id=rollout.attempt.attempt_id),
    ):
        reward(SimpleNamespace(violations=[low]))
    spans = list(asyncio.run(store.query_spans(rollout.rollout_id)))
    assert agl.find_final_reward(spans) == 1.0


def test_a_flight_recorder_is_spans() -> None:
    at = datetime(2026, 1, 2, tzinfo=UTC)
    entries = [
        SimpleNamespace(type="policy_check", timestamp=at, agent_id="a", policy_name="p", violated=True),
        SimpleNamespace(type="signal", timestamp=at, agent_id="a", signal="stop"),
    ]
    adapter = FlightRecorderAdapter(SimpleNamespace(entries=entries))
    store = agl.InMemoryLightningStore()
    assert adapter.import_to_store(store) == 2
    [rollout] = asyncio.run(store.query_rollouts())
    spans = list(asyncio.run(store.query_spans(rollout.rollout_id)))
    assert [(span.name, span.start_time) for span in spans] == [
        ("agent_os.policy_check", at.timestamp()),
        ("agent_os.signal", at.timestamp()),
    ]
    assert spans[0].attributes["agent_os.policy_violated"] is True
    assert spans[1].attributes["agent_os.signal_type"] == "stop"
    assert adapter.get_violation_summary() == {"total_entries": 2, "total_violations": 1, "violation_rate": 0.5}
