"""The files for Prometheus and Grafana, as tests read them."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lightstream.runtime.settings import Settings
from lightstream.up import SERVICES, Stack

FOLDER = Path(__file__).parents[2] / "docker" / "monitoring"
ALERTS = FOLDER / "alerts.yml"

yaml: Any = importlib.import_module("yaml")  # by name: it has no types


def every_server(settings: Settings) -> Stack:
    """All servers of ours, not started yet."""
    return Stack(settings, services=SERVICES, programs={"store": (sys.executable, "-m", "lightstream.cli", "store")})


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
