"""A real Prometheus, Debian's, reads our rules and panels, and asks processes that run."""

from __future__ import annotations

import subprocess
from contextlib import closing
from functools import partial
from pathlib import Path

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
from .prometheus import Prometheus, installed

pytestmark = pytest.mark.prometheus

ALERT_TESTS = Path(__file__).with_name("alerts.test.yml")


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
            eventually(lambda: "LightstreamProcessDown" in prometheus.alerts(), what="a pending alert")


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
