"""What stands in the way of ``lightstream up``, and what it does about it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lightstream.runtime.services import Service, announce
from lightstream.runtime.settings import Settings
from lightstream.store_views.client import ViewClient
from lightstream.store_views.materialiser import default_path
from tests.support.processes import processes_of
from tests.support.program import lightstream, program
from tests.support.waiting import eventually


@pytest.fixture
def local(tmp_path: Path) -> Settings:
    return Settings.load(data_dir=tmp_path, kafka_bootstrap_servers=None, gateway_port=0, gateway_grpc_port=0)


@pytest.fixture
def living() -> Iterator[int]:
    """The process id of a stranger."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process.pid
        process.kill()


@pytest.mark.parametrize("services", [("view",), ("view", "gateway", "proxy", "worker")])
def test_what_runs_already_is_named_and_nothing_is_started(
    local: Settings, living: int, services: tuple[str, ...]
) -> None:
    for service in services:
        announce(local, Service(service, "", living, 0))
    done = lightstream(local.data_dir, "up")
    assert done.returncode == 1
    assert done.stderr.count("Error:") == 1
    for service in services:
        assert f"a {service} (process {living})" in done.stderr
    assert "already run" in done.stderr
    assert "LIGHTSTREAM_DATA_DIR" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (local.data_dir / "broker").exists()
    eventually(lambda: not processes_of(local.data_dir), what="no process is left")


def test_a_stranger_with_the_process_id_of_a_former_run_is_none_of_ours(local: Settings, living: int) -> None:
    former = Service("view", "http://127.0.0.1:1", living, 0)
    announce(local, former)
    file = local.data_dir / "run" / "view.json"
    file.write_text(file.read_text().replace('"process_start_ticks": ', '"process_start_ticks": 1'))
    with program(local, "up", "--no-proxy", "--no-gateway") as up:
        up.wait_for("worker", "view")


def _view_file(local: Settings) -> Path:
    file = default_path(local)
    file.parent.mkdir(parents=True)
    return file


def test_a_view_file_that_is_none_is_set_aside(local: Settings) -> None:
    file = _view_file(local)
    file.write_bytes(b"not a database")
    with program(local, "up", "--no-worker", "--no-proxy", "--no-gateway") as up:
        up.wait_for("view")
        client = ViewClient(local)
        assert client.query("SELECT count(*) FROM rollouts").rows == [[0]]
        client.close()
    assert file.with_name(file.name + ".old").read_bytes() == b"not a database"
    log = (local.data_dir / "logs" / "view.log").read_text()
    assert log.count("cannot be read") == 1
    assert "nanobind" not in log


def test_a_view_that_cannot_start_says_why_and_no_more(local: Settings) -> None:
    file = _view_file(local)
    file.mkdir()
    done = lightstream(local.data_dir, "up", "--no-worker", "--no-proxy", "--no-gateway")
    assert done.returncode == 1
    assert f"{file.name} cannot be opened" in done.stderr
    assert "nanobind" not in done.stderr
    assert "Traceback" not in done.stderr
    eventually(lambda: not processes_of(local.data_dir), what="no process is left")


@pytest.mark.parametrize("server", ["view", "proxy", "gateway", "store", "policy"])
def test_a_server_that_would_answer_anyone_ends_at_once_and_says_what_to_set(local: Settings, server: str) -> None:
    """Before it asks Kafka for anything: there is none."""
    variables = {"LIGHTSTREAM_HOST": "0.0.0.0", "LIGHTSTREAM_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1"}
    done = lightstream(local.data_dir, server, **variables)
    assert done.returncode == 1
    assert "would answer anyone who reaches 0.0.0.0" in done.stderr
    for setting in (
        f"LIGHTSTREAM_{server.upper()}_TOKEN",
        "LIGHTSTREAM_TOKENS_FILE",
        "LIGHTSTREAM_OPEN_TO_NETWORK=true",
    ):
        assert setting in done.stderr
