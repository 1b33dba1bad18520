"""Panels and alerts parse, and ask only for metrics that our processes tell."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import promql_parser
import pytest

from lightstream.runtime.services import discover
from lightstream.runtime.settings import Settings
from lightstream.up import Stack
from tests.support.waiting import eventually

FOLDER = Path(__file__).parents[2] / "docker" / "monitoring"
ALERTS = FOLDER / "alerts.yml"
SERVICES = ("worker", "view", "proxy", "gateway")
OF_PROMETHEUS = {"up"}
WHEN_THERE_IS_ONE = {"lightstream_rollouts", "lightstream_calls", "lightstream_http_requests_total"}
"""Series that begin with the first rollout, call or request."""
OWN_METRIC = re.compile(r"\b(?:lightstream|process)_\w+|\bup\b")
ID_LABELS = {"rollout_id", "attempt_id", "run_id", "span_id", "worker_id", "path", "le_id"}


def _yaml(path: Path) -> Any:
    yaml: Any = importlib.import_module("yaml")  # by name: it has no types
    return yaml.safe_load(path.read_text())


def expressions() -> Iterator[str]:
    for group in _yaml(ALERTS)["groups"]:
        for rule in group["rules"]:
            yield rule["expr"]
    for panel in json.loads((FOLDER / "grafana-dashboard.json").read_text())["panels"]:
        for target in panel["targets"]:
            yield target["expr"]


@pytest.mark.parametrize("expression", sorted(set(expressions())))
def test_an_expression_is_promql(expression: str) -> None:
    promql_parser.parse(expression)


@pytest.mark.soak
def test_promtool_accepts_the_rules_and_the_configuration() -> None:
    promtool = shutil.which("promtool")
    assert promtool is not None, "Debian's package prometheus brings it"
    for kind, path in (("rules", ALERTS), ("config", FOLDER / "prometheus.yml")):
        done = subprocess.run([promtool, "check", kind, str(path)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_asks_at_the_ports_of_the_compose_file() -> None:
    environment = _yaml(FOLDER.parent / "compose.yaml")["x-lightstream"]["environment"]
    (job,) = _yaml(FOLDER / "prometheus.yml")["scrape_configs"]
    targets = [target for group in job["static_configs"] for target in group["targets"]]
    targets += [f"{name}:{group['port']}" for group in job["dns_sd_configs"] for name in group["names"]]
    for target in targets:
        name, _, port = target.partition(":")
        assert environment[f"LIGHTSTREAM_{name.upper()}_PORT"] == port
    assert len(targets) == 6


def is_ready(url: str) -> bool:
    return httpx.get(f"{url}/readyz", timeout=60).status_code == 200


def test_every_process_is_alive_and_ready_and_tells_the_metrics_that_are_asked_for(settings: Settings) -> None:
    told: dict[str, set[str]] = {}
    with Stack(settings, services=SERVICES) as stack:
        for service in SERVICES:
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
    asked = {name for expression in expressions() for name in OWN_METRIC.findall(expression)}
    assert asked - {name for names in told.values() for name in names} <= OF_PROMETHEUS | WHEN_THERE_IS_ONE
