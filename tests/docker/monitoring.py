"""The files for Prometheus and Grafana, as tests read them."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["ALERTS", "FOLDER", "SERVICES", "panel_expressions", "read_yaml", "rule_expressions", "rules"]

FOLDER = Path(__file__).parents[2] / "docker" / "monitoring"
ALERTS = FOLDER / "alerts.yml"
SERVICES = ("worker", "view", "proxy", "gateway")

yaml: Any = importlib.import_module("yaml")  # by name: it has no types


def read_yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def rules() -> list[dict[str, Any]]:
    return [rule for group in read_yaml(ALERTS)["groups"] for rule in group["rules"]]


def rule_expressions() -> Iterator[str]:
    return (rule["expr"] for rule in rules())


def panel_expressions() -> Iterator[str]:
    for panel in json.loads((FOLDER / "grafana-dashboard.json").read_text())["panels"]:
        for target in panel["targets"]:
            yield target["expr"]
