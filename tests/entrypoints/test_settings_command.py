"""``lightstream settings`` shows what each setting is, and no secrets."""

from __future__ import annotations

import json
import os

import pytest
from typer.testing import CliRunner

from lightstream.cli.app import app
from lightstream.runtime.settings import Settings


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("LIGHTSTREAM_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("LIGHTSTREAM_KAFKA_SASL_PASSWORD", "hunter2")
    monkeypatch.setenv("LIGHTSTREAM_LLM_UPSTREAM_URL", "http://me:hunter2@127.0.0.1:8000/v1")
    monkeypatch.setenv("LIGHTSTREAM_RECORD_BYTES_MAX", "33554432")  # as by default


def settings(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["settings", *arguments])
    if done.exception is not None:
        raise done.exception
    return done.output


def test_the_table_has_every_setting_and_says_where_its_value_is_from() -> None:
    rows = {cells[1]: cells[2:4] for line in settings().splitlines() if len(cells := _cells(line)) > 3}
    assert {name for name in rows if name.startswith("LIGHTSTREAM_")} == {
        f"LIGHTSTREAM_{name.upper()}" for name in Settings.model_fields
    }
    assert rows["LIGHTSTREAM_KAFKA_SASL_PASSWORD"] == ["(hidden)", "environment"]
    assert rows["LIGHTSTREAM_LLM_UPSTREAM_URL"] == ["http://(hidden)@127.0.0.1:8000/v1", "environment"]
    assert rows["LIGHTSTREAM_RECORD_BYTES_MAX"] == ["33554432 (32 MiB)", "environment"]
    assert rows["LIGHTSTREAM_GATEWAY_TOKEN"] == ["(unset)", "default"]
    assert rows["LIGHTSTREAM_PUBLISH_TIMEOUT_S"] == ["60 (1 min)", "default"]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("│")]


def test_json_has_values_as_they_are() -> None:
    text = settings("--format", "json")
    found = {setting.pop("name"): setting for setting in json.loads(text)["settings"]}
    assert len(found) == len(Settings.model_fields)
    assert all(setting.pop("meaning") for setting in found.values())
    assert found["LIGHTSTREAM_KAFKA_SASL_PASSWORD"] == {"value": "(hidden)", "from": "environment", "secret": True}
    assert found["LIGHTSTREAM_GATEWAY_TOKEN"] == {"value": None, "from": "default", "secret": True}
    assert found["LIGHTSTREAM_TOPIC_PREFIX"] == {"value": "", "from": "default", "secret": False}
    assert found["LIGHTSTREAM_RECORD_BYTES_MAX"] == {"value": 33554432, "from": "environment", "secret": False}
    assert found["LIGHTSTREAM_DATA_DIR"] == {"value": ".lightstream", "from": "default", "secret": False}
    assert "hunter2" not in text


def test_another_output_is_refused() -> None:
    refused = CliRunner().invoke(app, ["settings", "--format", "yaml"])
    assert refused.exit_code == 2
    assert "'table', 'json'" in refused.output


def test_help_tells_of_it() -> None:
    assert "lightstream settings" in CliRunner().invoke(app, ["--help"]).output
