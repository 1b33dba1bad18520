"""Requests that the policy server, as ``lightstream up`` starts it, cannot serve: each is answered, at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from lightstream.runtime.services import discover
from lightstream.runtime.settings import Settings
from lightstream.trainers import make_tiny_model
from tests.support.program import program

SERVICES = ("--no-worker", "--no-view", "--no-gateway", "--policy")
WAIT_S = 3600.0
"""For a version that may come; nobody waits for it here."""

TIMEOUT_S = 120.0

STRICT_TEMPLATE = """
{%- if messages[0].role != 'user' -%}{{ raise_exception('the first message must be the user\\'s') }}{%- endif -%}
{%- for message in messages -%}{{ message.content.strip() }}{%- endfor -%}
"""
"""Of a kind that many models have."""


def _settings(folder: Path) -> Settings:
    return Settings.load(data_dir=folder, kafka_bootstrap_servers=None, policy_version_wait_s=WAIT_S)


def _ask(settings: Settings, service: str, content: str, path: str = "chat/completions") -> httpx.Response:
    return httpx.post(
        f"{discover(settings, service).address}/v1/{path}",
        content=content,
        headers={"content-type": "application/json"},
        timeout=TIMEOUT_S,
    )


def _said(answer: httpx.Response) -> str:
    return str(answer.json()["error"]["message"])


def test_without_a_model_it_says_so_at_once(tmp_path: Path) -> None:
    settings = _settings(tmp_path)
    chat = json.dumps({"model": "policy", "messages": [{"role": "user", "content": "hi"}]})
    with program(settings, "up", *SERVICES) as up:
        up.wait_for("policy", "proxy")
        for service in ("policy", "proxy"):
            answer = _ask(settings, service, chat)
            assert answer.status_code == 503
            assert "--checkpoint" in _said(answer)


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Its model's template takes no system message."""
    folder: Path = tmp_path_factory.mktemp("strict")
    model = make_tiny_model(folder / "model")
    (model / "chat_template.jinja").write_text(STRICT_TEMPLATE)
    settings = _settings(folder / "data")
    with program(settings, "up", *SERVICES, "--checkpoint", str(model)) as up:
        up.wait_for("policy", "proxy")
        yield settings


@pytest.mark.parametrize(
    ("path", "request_values"),
    [
        ("chat/completions", {"messages": [{"role": "system", "content": "x"}]}),
        ("chat/completions", {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]}),
        ("chat/completions", {"messages": [{"role": "user", "content": None}]}),
        ("chat/completions", {"messages": [{"role": "user", "content": "\ud83d"}]}),
        ("completions", {"prompt": "\ud83d"}),
    ],
)
def test_what_the_template_refuses_is_a_bad_request(
    strict: Settings, path: str, request_values: dict[str, Any]
) -> None:
    for service in ("policy", "proxy"):
        answer = _ask(strict, service, json.dumps({"model": "policy"} | request_values), path)
        assert answer.status_code == 400, answer.text
        assert _said(answer)
    good = {"model": "policy", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
    assert _ask(strict, "policy", json.dumps(good)).status_code == 200
    assert "Traceback" not in (strict.data_dir / "logs" / "policy.log").read_text()
