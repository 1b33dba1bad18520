"""Tiny models of different weights, made once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lightstream.trainers.run.model.tiny_model import make_tiny_model
from lightstream.trainers.servers.cpu.policy_version import PolicyVersion
from tests.trainers.policy_server.support import EngineRun, new_versions


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Folders of the same architecture, each with other weights."""
    folder = tmp_path_factory.mktemp("checkpoints")
    return [make_tiny_model(folder / f"step-{seed}", seed=seed) for seed in range(4)]


@pytest.fixture
def version(checkpoints: list[Path]) -> PolicyVersion:
    """The first checkpoint, loaded."""
    versions = new_versions()
    versions.announce("policy@0", 0, str(checkpoints[0]))
    return versions.load("policy@0")


@pytest.fixture
def run() -> Iterator[EngineRun]:
    """A running engine."""
    run = EngineRun()
    run.engine.start()
    yield run
    run.engine.stop()
