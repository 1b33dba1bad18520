"""A Prometheus, Debian's, beside the processes of a test."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from lightstream.runtime.ports import free_port

from .monitoring import ALERTS, FOLDER, read_yaml, rules

STOP_TIMEOUT_S = 60.0


def installed(program: str) -> str:
    path = shutil.which(program)
    assert path is not None, f"{program} is in Debian's package prometheus"
    return path


class Prometheus:
    """A Prometheus that asks these addresses.

    Args:
        at_once: alerts fire as soon as their expression holds, in place of after their time.
        interval: how often it asks; it waits as long for an answer.
    """

    def __init__(self, folder: Path, targets: list[str], *, at_once: bool = False, interval: str = "1s") -> None:
        folder.mkdir(exist_ok=True)
        config = read_yaml(FOLDER / "prometheus.yml")
        (job,) = config["scrape_configs"]
        del job["dns_sd_configs"]
        job["static_configs"] = [{"targets": targets}]
        config["global"] = {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval}
        alerts = read_yaml(ALERTS)
        for rule in alerts["groups"][0]["rules"] if at_once else ():
            rule.pop("for", None)
        (folder / "alerts.yml").write_text(json.dumps(alerts))
        config["rule_files"] = [str(folder / "alerts.yml")]
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

    def alerts(self) -> set[str]:
        """The names of those that are pending or fire."""
        found = self.get("alerts")
        return {alert["labels"]["alertname"] for alert in found["alerts"]} if found else set()
