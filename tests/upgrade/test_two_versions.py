"""A version and a later one, whose every record has one more field, in both orders on the same topics."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from lightstream.runtime.processes import ProcessUnit, child_environment
from lightstream.runtime.services import find
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import TrainingError
from lightstream.store_views.client import ViewClient
from lightstream.store_views.materialiser import default_path
from lightstream.trainers.rollouts.trajectory_source import TrajectorySource
from tests.examples.test_consumers import (
    SCHEMAS,
    TIMEOUT_S,
    command_of,
    java,  # noqa: F401  # pyright: ignore[reportUnusedImport]  # a fixture
)
from tests.support.waiting import eventually

from .later_tree import LATER, ROOT, environment, write_later_tree
from .write import write

INSTALL = f"install version {LATER}"
WORKER_RECORD_BYTES_MAX = 1 << 20
"""A trajectory of two calls goes to a file."""


@pytest.fixture(scope="module")
def later(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What runs the later version."""
    folder = tmp_path_factory.mktemp("later")
    write_later_tree(folder)
    return environment(folder)


@contextmanager
def running(settings: Settings, version: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """A worker and a view of that version."""
    with ExitStack() as stack, monkeypatch.context() as patched:
        for name, value in version.items():
            patched.setenv(name, value)
        of_worker = settings.model_copy(update={"record_bytes_max": WORKER_RECORD_BYTES_MAX})
        units = [
            ProcessUnit(name, [sys.executable, "-m", "lightstream.cli", name], of_unit)
            for name, of_unit in (("worker", of_worker), ("view", settings))
        ]
        for unit in units:
            stack.callback(unit.stop)
            stack.callback(print_log, unit)
            unit.start()
        yield


def print_log(unit: ProcessUnit) -> None:
    """The end of it, which pytest shows where the test fails."""
    print(unit.log_file.read_text("utf-8")[-3_000:])


def write_as(version: dict[str, str], settings: Settings, *names: str) -> None:
    command = [sys.executable, "-m", "tests.upgrade.write", *names]
    subprocess.run(command, env=child_environment(settings) | version, cwd=ROOT, check=True)


def shown(settings: Settings, sql: str) -> list[Any]:
    with closing(ViewClient(settings, patience_s=60)) as client:
        return [row[0] if len(row) == 1 else tuple(row) for row in client.query(sql).rows]


def unready(settings: Settings, name: str) -> str:
    service = find(settings, name)
    assert service is not None
    return str(httpx.get(f"{service.address}/readyz").json().get("reasons", ""))


def test_older_reads_on_and_keeps_what_a_newer_one_reads_after_the_upgrade(
    settings: Settings, tmp_path: Path, later: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    free = {"worker_port": 0, "view_port": 0, "large_records_dir": tmp_path / "large"}
    settings = settings.model_copy(update=free)
    assembled = "SELECT rollout_id FROM trajectories ORDER BY ALL"
    dead = "SELECT detail FROM dead_letters"

    with running(settings, {}, monkeypatch):
        write(settings, "old:enqueued", "old:started", "mixed:enqueued", "mixed:started", "crossed:enqueued")
        eventually(lambda: len(shown(settings, "FROM attempts_opened_raw")) == 2, what="two attempts")
        write_as(later, settings, "mixed:0", "crossed:started", "new:enqueued", "new:started", "new:ended")
        write(settings, "mixed:1", "mixed:ended", "crossed:ended", "old:0", "old:ended")
        eventually(lambda: shown(settings, assembled) == ["old"], what="the trajectory of the older version's rollout")
        eventually(lambda: f"8 records of Lightstream {LATER}" in unready(settings, "worker"), what="what waits")
        assert INSTALL in unready(settings, "worker")
        assert INSTALL in unready(settings, "view")
        assert shown(settings, "SELECT unread, balanced FROM call_accounting") == [(5, False)]
        command = [sys.executable, "-m", "lightstream.cli", "status"]
        told = subprocess.run(
            command, env=child_environment(settings) | {"COLUMNS": "500"}, capture_output=True, text=True, check=True
        )
        assert told.stdout.count(INSTALL) == 2
        assert shown(settings, dead) == []
        assert shown(settings, assembled) == ["old"]
    before = default_path(settings).read_bytes()

    with running(settings, later, monkeypatch):
        eventually(lambda: shown(settings, assembled) == ["crossed", "mixed", "new", "old"], what="all trajectories")
        assert shown(settings, "SELECT DISTINCT status FROM rollouts") == ["succeeded"]
        assert shown(settings, "SELECT rollout_id, count(*) FROM triplets GROUP BY ALL ORDER BY ALL") == [
            ("mixed", 2),
            ("old", 1),
        ]
        (payload,) = shown(settings, "SELECT payload_url FROM trajectories WHERE rollout_id = 'mixed'")
        assert payload.startswith("file:")
        assert shown(settings, "SELECT unread, balanced FROM call_accounting") == [(0, True)]
        assert "added_later" in shown(settings, "SELECT column_name FROM (DESCRIBE spans_raw)")
        assert shown(settings, dead) == []
        assert (unready(settings, "worker"), unready(settings, "view")) == ("", "")
    assert default_path(settings).read_bytes() == before, "the older version's file is left as it was"

    with running(settings, {}, monkeypatch):
        write(settings, "back:enqueued", "back:started")
        eventually(lambda: "back" in shown(settings, "SELECT rollout_id FROM attempts_opened_raw"), what="an attempt")
        write(settings, "back:0", "back:ended")
        eventually(lambda: shown(settings, assembled) == ["back", "old"], what="a trajectory after the way back")
        assert INSTALL in unready(settings, "view")
        assert shown(settings, "SELECT balanced FROM call_accounting") == [False]
        assert shown(settings, dead) == []


def test_a_trainer_ends_with_the_version_that_its_run_needs_and_leaves_other_runs_alone(
    settings: Settings, later: dict[str, str]
) -> None:
    write(settings, "r1:trajectory")
    write_as(later, settings, "r2:trajectory")
    with closing(TrajectorySource(settings, "reader", run_id="run")) as source:
        source.start({})
        with pytest.raises(TrainingError, match=f"Install version {LATER}"):
            eventually(lambda: source.poll(0.1) and False)
    with closing(TrajectorySource(settings, "other", run_id="other")) as source:
        source.start({})
        ends = source.end_offsets()
        eventually(lambda: source.poll(0.1) == [] and source.has_read(ends))
        assert (source.of_other_runs, source.undecodable) == (2, 0)


@pytest.mark.parametrize("language", ["python", pytest.param("java", marks=pytest.mark.soak)])
def test_consumers_in_plain_clients_name_the_version_and_read_on_with_its_schemas(
    settings: Settings, later: dict[str, str], language: str, request: pytest.FixtureRequest
) -> None:
    write_as(later, settings, "r1:trajectory", "r2:trajectory")
    command = command_of(language, settings, request, steps=1)
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    assert ended.returncode != 0
    assert f"written by Lightstream {LATER}" in ended.stderr
    schemas = later["PYTHONPATH"].split(os.pathsep)[0] + "/lightstream/schemas/avro"
    with_schemas = [schemas if part == str(SCHEMAS) else part for part in command]
    if language == "python":
        with_schemas += ["--schemas", schemas]
    went_on = subprocess.run(with_schemas, capture_output=True, text=True, check=True, timeout=TIMEOUT_S)
    assert "step 1" in went_on.stdout
