"""Panels and alerts parse, and ask only for metrics that our processes tell."""

from __future__ import annotations

import re
from functools import partial

import httpx
import promql_parser
import pytest

from lightstream.runtime.processes import Restarts, note_restart
from lightstream.runtime.services import discover
from lightstream.runtime.settings import Settings
from lightstream.schemas.records import StepOutcome
from lightstream.trainers.run.report import StepReport
from lightstream.trainers.run.series import TrainingSeries
from tests.store_views.view_process import running_view
from tests.support.waiting import eventually

from .monitoring import FOLDER, every_server, panel_expressions, read_yaml, rule_expressions

OF_PROMETHEUS = {"up"}
WHEN_THERE_IS_ONE = {
    "lightstream_rollouts",
    "lightstream_calls",
    "lightstream_http_requests_total",
    "lightstream_proxy_upstream_answers_total",
    "lightstream_restarts_total",
    "lightstream_release_rule_failing",
    "lightstream_release_alarm",
}
"""Series that begin with the first rollout, call, request, restart, alarm or rule that fails."""
REPORT = StepReport(
    step=3,
    steps=4,
    outcome=StepOutcome.UPDATED,
    mean_reward=0.5,
    logprob_diff_max=0.25,
    rollouts=8,
    calls=9,
    rows=7,
    tokens=100,
    seconds=1.5,
    resources_id=None,
    metrics={"batch/staleness_max": 2.0},
)
OWN_METRIC = re.compile(r"\b(?:lightstream|process)_\w+|\bup\b")
ID_LABELS = {"rollout_id", "attempt_id", "run_id", "span_id", "worker_id", "path", "le_id"}


@pytest.mark.parametrize("expression", sorted({*rule_expressions(), *panel_expressions()}))
def test_an_expression_is_promql(expression: str) -> None:
    promql_parser.parse(expression)


def test_prometheus_asks_at_the_ports_of_the_compose_file() -> None:
    environment = read_yaml(FOLDER.parent / "compose.yaml")["x-lightstream"]["environment"]
    (job,) = read_yaml(FOLDER / "prometheus.yml")["scrape_configs"]
    targets = [target for group in job["static_configs"] for target in group["targets"]]
    targets += [f"{name}:{group['port']}" for group in job["dns_sd_configs"] for name in group["names"]]
    for target in targets:
        name, _, port = target.partition(":")
        assert environment[f"LIGHTSTREAM_{name.upper()}_PORT"] == port
    assert len(targets) == 6


def test_the_view_tells_what_up_has_started_again(settings: Settings) -> None:
    note_restart(settings, Restarts("worker", 3, "was killed", 1))
    with running_view(settings):
        told = httpx.get(f"{discover(settings, 'view').address}/metrics", timeout=60).text
    assert '\nlightstream_restarts_total{process="worker"} 3.0\n' in told


def is_ready(url: str) -> bool:
    return httpx.get(f"{url}/readyz", timeout=60).status_code == 200


def test_every_process_is_alive_and_ready_and_tells_the_metrics_that_are_asked_for(settings: Settings) -> None:
    told: dict[str, set[str]] = {}
    with every_server(settings) as stack:
        for service in stack.names:
            url = discover(stack.settings, service).address
            assert httpx.get(f"{url}/healthz", timeout=60).status_code == 200, service
            eventually(partial(is_ready, url), what=service)
            answer = httpx.get(f"{url}/metrics", timeout=60)
            assert answer.headers["content-type"].startswith("text/plain")
            told[service] = set(re.findall(r"^([a-z_]+)(?:\{| )", answer.text, re.MULTILINE))
            assert f'lightstream_ready{{server="{service}"}} 1.0' in answer.text
            labels = {
                name for inside in re.findall(r"\{(.*?)\}", answer.text) for name in re.findall(r"(\w+)=", inside)
            }
            assert not labels & ID_LABELS
    assert "lightstream_view_lag_records" in told["view"]
    asked = {
        name for expression in (*rule_expressions(), *panel_expressions()) for name in OWN_METRIC.findall(expression)
    }
    of_training = TrainingSeries()
    of_training(REPORT)
    told["training"] = {metric.name for metric in of_training.readings()}
    assert asked - {name for names in told.values() for name in names} <= OF_PROMETHEUS | WHEN_THERE_IS_ONE
