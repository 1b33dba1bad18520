"""Wrong settings name the variable, what it has and what it accepts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lightstream.runtime.kafka import bootstrap_servers
from lightstream.runtime.settings import Settings
from lightstream.schemas.assembly_rules import CREDIT_RULES
from lightstream.schemas.errors import ServiceUnavailableError, SettingsError


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("LIGHTSTREAM_")]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("variable", "value", "accepted"),
    [
        ("LIGHTSTREAM_TOPIC_PARTITIONS", "none", "integer"),
        ("LIGHTSTREAM_TOPIC_PARTITIONS", "0", "greater than or equal to 1"),
        ("LIGHTSTREAM_PROXY_PORT", "70000", "less than or equal to 65535"),
        ("LIGHTSTREAM_KAFKA_SECURITY_PROTOCOL", "TLS", "'SASL_SSL'"),
        ("LIGHTSTREAM_TOPIC_PREFIX", "no spaces", "pattern"),
        ("LIGHTSTREAM_REWARD_MATCH", "log-order", "'log_order'"),
        ("LIGHTSTREAM_CREDIT", "identicle", "no such rule"),
        ("LIGHTSTREAM_CREDIT", "identicle", "identical, identical_plus_own"),
        ("LIGHTSTREAM_CREDIT", "discounted:1.5", "no such rule"),
        ("LIGHTSTREAM_CREDIT", "discounted:", "no such rule"),
        ("LIGHTSTREAM_CREDIT", "discounted:much", "much"),
        ("LIGHTSTREAM_CREDIT", "module:not a name", "no such rule"),
    ],
)
def test_a_wrong_value_is_named(monkeypatch: pytest.MonkeyPatch, variable: str, value: str, accepted: str) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError) as caught:
        Settings.load()
    for part in (variable, value, accepted):
        assert part in str(caught.value)


@pytest.mark.parametrize("credit", [*CREDIT_RULES, "discounted:0.9", "discounted:1", "my.module:rule", "C:\\a.py:rule"])
def test_the_names_of_credit_rules_are_accepted(credit: str) -> None:
    assert Settings.load(credit=credit).credit == credit


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(SettingsError, match="LIGHTSTREAM_TOPIC_PREFX is not a setting"):
        Settings.load(topic_prefx="x")


@pytest.mark.parametrize(
    "variable", ["LIGHTSTREAM_TOPIC_PREFX", "LIGHTSTREAM_BOOTSTRAP_SERVERS", "lightstream_datadir"]
)
def test_a_misspelled_variable_is_refused(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "x")
    with pytest.raises(SettingsError, match=rf"{variable} is not a setting; LIGHTSTREAM_\w+ is\."):
        Settings.load()


@pytest.mark.parametrize("variable", ["LIGHTSTREAM_PROXY_PORT_8000_TCP", "LIGHTSTREAM_TEST_SEED", "LIGHTSTREAM_"])
def test_a_variable_that_resembles_no_setting_is_left_alone(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "x")
    Settings.load()


def test_secrets_are_not_shown() -> None:
    settings = Settings.load(kafka_sasl_password="hunter2")
    assert "hunter2" not in repr(settings)


def test_a_child_process_gets_the_same_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings = Settings.load(
        data_dir=tmp_path, topic_prefix="p.", kafka_sasl_password="hunter2", topic_partitions=7, publish_timeout_s=2.5
    )
    for name, value in settings.to_environment().items():
        monkeypatch.setenv(name, value)
    assert Settings.load() == settings


def test_no_kafka_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(ServiceUnavailableError, match="lightstream broker start"):
        bootstrap_servers(Settings.load(data_dir=tmp_path))
