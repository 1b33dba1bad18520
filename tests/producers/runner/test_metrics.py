"""Health and metrics of a process with Runners, as Prometheus reads them."""

from __future__ import annotations

import socket

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from lightstream.producers import OtelTracer, rollout
from lightstream.producers.runner.metrics import served_metrics
from lightstream.runtime import health_port
from lightstream.runtime.ports import free_port, is_free
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import ServiceUnavailableError
from tests.producers.support import ListStore
from tests.support.waiting import eventually

from .running import run


def told(port: int) -> dict[tuple[str, str], float]:
    """Samples of Runners by name and status."""
    text = httpx.get(f"http://127.0.0.1:{port}/metrics").raise_for_status().text
    return {
        (sample.name, sample.labels.get("status", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("lightstream_runner_attempt")
    }


def test_attempts_are_counted_by_how_they_ended(settings: Settings, tracer: OtelTracer) -> None:
    port = free_port()
    running: list[float] = []

    @rollout
    def agent(task: str) -> float:
        running.append(told(port)["lightstream_runner_attempts_running", ""])
        if task == "bad":
            raise ValueError("not this one")
        return 1.0

    with served_metrics(settings.model_copy(update={"runner_port": port})) as hooks:
        before = told(port)
        run(ListStore(), agent, settings, tracer, ["a", "bad", "b"], n_concurrent=1, hooks=hooks)
        after = told(port)
    assert running == [1.0, 1.0, 1.0]
    assert after["lightstream_runner_attempts_running", ""] == 0
    for sample, more in {
        ("lightstream_runner_attempts_total", "succeeded"): 2,
        ("lightstream_runner_attempts_total", "failed"): 1,
        ("lightstream_runner_attempt_seconds_count", ""): 3,
    }.items():
        assert after[sample] - before.get(sample, 0.0) == more, sample
    with pytest.raises(httpx.ConnectError):
        told(port)


def test_the_next_process_takes_the_next_port_until_none_is_left(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_port, "PORTS", 2)
    base = free_port()
    while not is_free(base + 1):
        base = free_port()
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", base))
        first.listen()
        wanted = settings.model_copy(update={"runner_port": base})
        with served_metrics(wanted):  # as the second process does
            assert ("lightstream_runner_attempts_running", "") in told(base + 1)
        second.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        second.bind(("127.0.0.1", base + 1))
        second.listen()
        said = f"ports {base} to {base + 1}.*LIGHTSTREAM_RUNNER_PORT"
        with pytest.raises(ServiceUnavailableError, match=said), served_metrics(wanted):
            pass


def test_a_process_is_alive_and_is_ready_where_kafka_answers(settings: Settings) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with served_metrics(settings.model_copy(update={"runner_port": port})):
        assert httpx.get(f"{url}/healthz", timeout=60).status_code == 200
        eventually(lambda: httpx.get(f"{url}/readyz", timeout=60).status_code == 200, what="ready")
        assert 'lightstream_ready{server="runner"} 1.0' in httpx.get(f"{url}/metrics", timeout=60).text
    nowhere = settings.model_copy(update={"runner_port": port, "kafka_bootstrap_servers": f"127.0.0.1:{free_port()}"})
    with served_metrics(nowhere):
        assert httpx.get(f"{url}/healthz", timeout=60).status_code == 200
        answer = httpx.get(f"{url}/readyz", timeout=60)
    assert (answer.status_code, answer.json()["reasons"]) == (503, ["Kafka has not answered yet"])


def test_without_a_port_nothing_is_served_nor_counted(settings: Settings) -> None:
    with served_metrics(settings) as hooks:
        assert hooks == []
