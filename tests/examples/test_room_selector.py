"""The search for the room selector's prompt, on a store in memory, by real HTTP calls of the scripted models."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.room_selector.run import find_prompt
from examples.room_selector.scripted import CRITERIA, scripted_endpoint
from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.settings import Settings
from lightstream.trainers import InMemoryLightningStore


def test_the_prompt_that_names_every_criterion_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = HttpServer(scripted_endpoint(), Settings.load(data_dir=tmp_path), name="scripted")
    monkeypatch.setenv("OPENAI_BASE_URL", f"{server.start()}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    try:
        found = find_prompt(InMemoryLightningStore(), rounds=5, seed=0).template
    finally:
        server.stop()
    assert [criterion for criterion in CRITERIA if criterion in found] == list(CRITERIA)
