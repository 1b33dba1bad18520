"""Announcements: a name belongs to the process that has it, until that ends."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.applications import Starlette

from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.services import Service, announce, find, withdraw
from lightstream.runtime.settings import Settings


@pytest.fixture
def local(tmp_path: Path) -> Settings:
    return Settings.load(data_dir=tmp_path)


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def test_a_name_stays_with_the_living(local: Settings, stranger: subprocess.Popen[bytes]) -> None:
    theirs = Service("proxy", "http://127.0.0.1:1", stranger.pid, 0)
    ours = Service("proxy", "http://127.0.0.1:2", os.getpid(), 0)
    assert announce(local, theirs)
    assert not announce(local, ours)
    withdraw(local, "proxy", os.getpid())
    found = find(local, "proxy")
    assert found is not None
    assert found.address == theirs.address
    stranger.kill()
    stranger.wait()
    assert announce(local, ours)
    found = find(local, "proxy")
    assert found is not None
    assert found.address == ours.address


@pytest.mark.parametrize("announced", [True, False])
def test_a_server_beside_another_neither_takes_nor_removes_its_name(
    local: Settings, stranger: subprocess.Popen[bytes], announced: bool, caplog: pytest.LogCaptureFixture
) -> None:
    announce(local, Service("proxy", "http://127.0.0.1:1", stranger.pid, 0))
    server = HttpServer(Starlette(), local, name="proxy", announced=announced)
    for _ in ("while it serves", "afterwards"):
        server.start() if not server.is_serving else server.stop()
        found = find(local, "proxy")
        assert found is not None
        assert found.pid == stranger.pid
    assert (server.url in caplog.text) == announced


def test_a_server_that_is_not_announced_leaves_its_own_process_s_name(local: Settings) -> None:
    first, second = (HttpServer(Starlette(), local, name="proxy", announced=each) for each in (True, False))
    first.start()
    second.start()
    second.stop()
    found = find(local, "proxy")
    assert found is not None
    assert found.address == first.url
    first.stop()
    assert find(local, "proxy") is None
