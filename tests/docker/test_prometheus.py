"""A real Prometheus, Debian's, reads our rules and panels, and asks processes that run."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from collections.abc import Generator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from lightstream.producers.runner.metrics import served_metrics
from lightstream.runtime.kafka import KafkaPublisher
from lightstream.runtime.ports import free_port
from lightstream.runtime.services import discover
from lightstream.runtime.settings import Settings
from lightstream.schemas.topics import ROLLOUT_EVENTS, SPANS
from tests.stream_processors.worker.harness import ended, enqueued, span, started
from tests.support.waiting import eventually

from .monitoring import ALERTS, FOLDER, every_server, panel_expressions, read_yaml, rules

pytestmark = pytest.mark.prometheus

ALERT_TESTS = Path(__file__).with_name("alerts.test.yml")
STOP_TIMEOUT_S = 60.0


def installed(program: str) -> str:
    path = shutil.which(program)
    assert path is not None, f"{program} is in Debian's package prometheus"
    return path


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(("kind", "path"), [("rules", ALERTS), ("config", FOLDER / "prometheus.yml")])
def test_promtool_accepts_what_we_ship(kind: str, path: Path) -> None:
    run(installed("promtool"), "check", kind, str(path))


def test_an_alert_is_raised_by_what_it_is_about_and_by_nothing_else(tmp_path: Path) -> None:
    tests = tmp_path / "tests.yml"
    tests.write_text(ALERT_TESTS.read_text().replace("ALERTS", str(ALERTS)))
    assert "SUCCESS" in run(installed("promtool"), "test", "rules", str(tests))
    tested = {case["alertname"] for each in read_yaml(ALERT_TESTS)["tests"] for case in each["alert_rule_test"]}
    assert tested == {rule["alert"] for rule in rules()}


class Prometheus:
    """A Prometheus that asks these addresses each second."""

    def __init__(self, folder: Path, targets: list[str]) -> None:
        config = read_yaml(FOLDER / "prometheus.yml")
        (job,) = config["scrape_configs"]
        del job["dns_sd_configs"]
        job["static_configs"] = [{"targets": targets}]
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config["rule_files"] = [str(ALERTS)]
        self._config = folder / "prometheus.yml"
        self._config.write_text(json.dumps(config))  # which is YAML, too
        self._folder = folder
        self._url = f"http://127.0.0.1:{free_port()}"

    @contextmanager
    def running(self) -> Generator[None]:
        """Its output is in ``prometheus.log``."""
        address = self._url.removeprefix("http://")
        arguments = [f"--config.file={self._config}", f"--storage.tsdb.path={self._folder / 'tsdb'}"]
        with (self._folder / "prometheus.log").open("wb") as log:
            process = subprocess.Popen(
                [installed("prometheus"), *arguments, f"--web.listen-address={address}"], stdout=log, stderr=log
            )
        try:
            yield
        finally:
            process.terminate()
            process.wait(STOP_TIMEOUT_S)

    def get(self, path: str, **params: str) -> Any:
        """The ``data`` of an answer of its API; nothing while it does not answer."""
        try:
            answer = httpx.get(f"{self._url}/api/v1/{path}", params=params, timeout=60)
        except httpx.TransportError:
            return None
        assert answer.status_code in {200, 503}, answer.text
        return answer.json()["data"] if answer.status_code == 200 else None

    def values(self, expression: str) -> list[float]:
        """Of each series, now, that is a number."""
        found = self.get("query", query=expression)
        values = [float(each["value"][1]) for each in found["result"]] if found else []
        return [value for value in values if not math.isnan(value)]

    def rules_evaluated(self) -> bool:
        """Whether it has evaluated each of them; one that failed fails the test."""
        found = self.get("rules")
        known = [rule for group in found["groups"] for rule in group["rules"]] if found else []
        assert not [rule for rule in known if rule["health"] == "err"], known
        return [rule["health"] for rule in known] == ["ok"] * len(rules())


def test_every_panel_shows_something_and_every_rule_is_evaluated(settings: Settings, tmp_path: Path) -> None:
    runner = settings.model_copy(update={"runner_port": free_port()})
    with every_server(settings) as stack, served_metrics(runner):
        urls = [discover(stack.settings, service).address for service in stack.names]
        targets = [*(url.removeprefix("http://") for url in urls), f"127.0.0.1:{runner.runner_port}"]
        prometheus = Prometheus(tmp_path, targets)
        with prometheus.running():
            number_of_targets = partial(prometheus.values, 'sum(up{job="lightstream"})')
            eventually(lambda: number_of_targets() == [len(targets)], what="all processes asked")
            train_on_one_rollout(stack.settings, prometheus)
            url = f"{discover(stack.settings, 'view').address}/v1/positions"
            for expression in panel_expressions():
                eventually(partial(values_after_a_request, prometheus, url, expression), what=expression)
            eventually(prometheus.rules_evaluated, what="rules evaluated")
            assert prometheus.values('lightstream_calls{fate="triplet"}') == [1]
            stack.stop()
            eventually(lambda: "LightstreamProcessDown" in pending(prometheus), what="a pending alert")


def values_after_a_request(prometheus: Prometheus, url: str, expression: str) -> list[float]:
    """A rate is of requests that go on coming."""
    httpx.get(url, timeout=60).raise_for_status()
    return prometheus.values(expression)


def train_on_one_rollout(settings: Settings, prometheus: Prometheus) -> None:
    """Let the worker assemble one call, which the view then counts."""
    with closing(KafkaPublisher(settings, linger_ms=0.0)) as publisher:
        for event in (enqueued("r1"), started("r1")):
            publisher.publish(ROLLOUT_EVENTS, "r1", event).result()
        begun = 'lightstream_rollouts{status=~"preparing|running"}'
        eventually(partial(prometheus.values, begun), what="the attempt's opening, which its spans come after")
        publisher.publish(SPANS, "r1", span("r1")).result()
        publisher.publish(ROLLOUT_EVENTS, "r1", ended("r1")).result()


def pending(prometheus: Prometheus) -> set[str]:
    found = prometheus.get("alerts")
    return {alert["labels"]["alertname"] for alert in found["alerts"]} if found else set()
