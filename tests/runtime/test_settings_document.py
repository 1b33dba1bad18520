"""The page of settings says what they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from lightstream.runtime.settings import SETTING_GROUPS, Settings
from lightstream.runtime.settings_document import accepted, in_words, is_secret, settings_as_markdown, shown

DOCUMENT = Path(__file__).parents[2] / "docs" / "settings.md"


def test_the_page_is_current() -> None:
    assert DOCUMENT.read_text("utf-8") == settings_as_markdown(), "run python -m lightstream.runtime.settings_document"


def test_every_setting_is_in_one_group() -> None:
    assert sorted(name for names in SETTING_GROUPS.values() for name in names) == sorted(Settings.model_fields)


@pytest.mark.parametrize("name", Settings.model_fields)
def test_a_setting_is_explained(name: str) -> None:
    description = Settings.model_fields[name].description or ""
    assert description.endswith("."), description


@pytest.mark.parametrize("name", Settings.model_fields)
def test_what_is_named_like_a_secret_is_one(name: str) -> None:
    is_named_so = any(word in name for word in ("token", "password", "api_key", "basic_auth"))
    assert is_secret(Settings.model_fields[name]) is (is_named_so and not name.endswith("_file"))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("data_dir", "path"),
        ("kafka_sasl_password", "secret text"),
        ("llm_backend", "`openai`, `litellm`"),
        ("topic_partitions", "whole number, 1 to 1000"),
        ("record_bytes_max", "whole number, 1 MiB to 1 GiB"),
        ("late_span_s_max", "number, 0 or more"),
        ("publish_timeout_s", "number, above 0"),
        ("gateway_wait_s", "number, above 0, at most 1 min"),
        ("policy_device", r"text, matching `^(auto|cpu|cuda(:\d+)?)$`"),
    ],
)
def test_what_a_setting_accepts_is_said_in_words(name: str, words: str) -> None:
    assert accepted(name, Settings.model_fields[name]) == words


def test_a_value_is_shown_without_what_is_secret() -> None:
    values = (None, "", 7, 0.5, 604800.0, SecretStr("hunter2"), "http://user:hunter2@host:1/v1", Path("a/b"))
    assert [shown(value) for value in values] == [
        "(unset)",
        "(empty)",
        "7",
        "0.5",
        "604800",
        "(hidden)",
        "http://(hidden)@host:1/v1",
        "a/b",
    ]


def test_a_round_number_is_said_in_words() -> None:
    assert in_words("late_span_s_max", 604800.0) == "7 d"
    assert in_words("record_bytes_max", 32 * 1024 * 1024) == "32 MiB"
    assert in_words("record_bytes_max", 1025) == ""
    assert in_words("topic_partitions", 1024) == ""


def test_the_fields_stand_in_the_order_of_their_groups() -> None:
    assert [name for names in SETTING_GROUPS.values() for name in names] == list(Settings.model_fields)
