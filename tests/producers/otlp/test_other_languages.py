"""Stock exporters of five SDKs: all that they send arrives, once. Needs Node, Go, Java 17 and their registries."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lightstream.schemas.records import SpanRecord
from tests.producers.otlp.conftest import Addresses

SPANS = 10_000
CLIENTS = Path(__file__).with_name("clients")
JS_PACKAGES = ("api", "sdk-trace-node", *(f"exporter-trace-otlp-{name}" for name in ("http", "proto", "grpc")))
JAVA_PACKAGES = ("opentelemetry-exporter-otlp", "opentelemetry-sdk")
JAVA_PACKAGES_VERSION = "1.50.0"
INSTALL_TIMEOUT_S, SEND_TIMEOUT_S = 280, 200


def run(folder: Path, *command: str, timeout_s: float = INSTALL_TIMEOUT_S) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=timeout_s)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def javascript(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("js")
    shutil.copy(CLIENTS / "send.mjs", folder)
    run(folder, "npm", "init", "--yes")
    run(folder, "npm", "install", "--silent", *(f"@opentelemetry/{name}" for name in JS_PACKAGES))
    return ["node", str(folder / "send.mjs")]


@pytest.fixture(scope="module")
def go(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("go")
    shutil.copy(CLIENTS / "main.go", folder)
    run(folder, "go", "mod", "init", "sender")
    run(folder, "go", "mod", "tidy")
    run(folder, "go", "build", "-o", "sender", ".")
    return [str(folder / "sender")]


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    import jgo

    packages = "+".join(f"io.opentelemetry:{name}:{JAVA_PACKAGES_VERSION}" for name in JAVA_PACKAGES)
    environment = jgo.build(packages, cache_dir=tmp_path_factory.mktemp("java"))
    class_path = os.pathsep.join(map(str, environment.all_jars))
    return ["java", "-cp", class_path, str(CLIENTS / "Send.java")]


@pytest.fixture(scope="module")
def python() -> list[str]:
    return [sys.executable, str(CLIENTS / "send.py")]


@pytest.mark.parametrize(
    ("language", "protocol"),
    [
        pytest.param("javascript", "http/json", marks=pytest.mark.soak),
        pytest.param("javascript", "http/protobuf", marks=pytest.mark.soak),
        pytest.param("javascript", "grpc", marks=pytest.mark.soak),
        pytest.param("go", "http/protobuf", marks=pytest.mark.soak),
        pytest.param("go", "grpc", marks=pytest.mark.soak),
        pytest.param("java", "http/protobuf", marks=pytest.mark.soak),
        pytest.param("java", "grpc", marks=pytest.mark.soak),
        ("python", "http/protobuf"),
        ("python", "grpc"),
    ],
)
def test_ten_thousand_spans_arrive_once(
    language: str,
    protocol: str,
    addresses: Addresses,
    spans_in_log: Callable[[], list[SpanRecord]],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    sender: list[str] = request.getfixturevalue(language)
    endpoint = addresses.grpc if protocol == "grpc" else addresses.http
    run(tmp_path, *sender, protocol, endpoint, str(SPANS), timeout_s=SEND_TIMEOUT_S)
    found = spans_in_log()
    names = {record.name.rpartition("-")[2] for record in found}
    assert names == {str(number) for number in range(SPANS)}
    assert len({(record.trace_id, record.span_id) for record in found}) == SPANS
    assert all(record.attributes["ids"] == [number * 1000 for number in range(64)] for record in found)
