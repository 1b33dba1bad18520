"""Debian's promtool reads our rules, and raises their alerts on made-up series."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from .monitoring import ALERTS, FOLDER, read_yaml, rules

pytestmark = pytest.mark.prometheus

ALERT_TESTS = Path(__file__).with_name("alerts.test.yml")


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
