"""The three servers, each as its users start it, and what each has stored."""

from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from lightstream.runtime.services import discover, find
from lightstream.runtime.settings import Settings
from lightstream.store_views.client import ViewClient

from ..view_process import view_process

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
POLL_INTERVAL_S = 0.1
LIGHTSTREAM, PHOENIX, MLFLOW = "lightstream", "phoenix", "mlflow"
MLFLOW_EXPERIMENT = "0"
"""That each server has from the start."""


@dataclass(frozen=True, slots=True)
class Server:
    """One that runs.

    Attributes:
        name: whose it is.
        traces_url: takes OTLP over HTTP.
        page_url: of its pages.
        count: how many spans it has stored, which for the peers is asked of their file: the cheapest way for them.
        headers: that a request with spans needs.
    """

    name: str
    traces_url: str
    page_url: str
    count: Callable[[], int]
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@contextmanager
def lightstream(settings: Settings) -> Generator[Server]:
    """Gateway and view, on a cluster that runs."""
    command = [sys.executable, "-m", "lightstream.cli", "gateway"]
    with ExitStack() as stack:
        stack.enter_context(_running(command, os.environ | settings.to_environment()))
        stack.enter_context(view_process(settings))
        client = stack.enter_context(closing(ViewClient(settings, patience_s=START_TIMEOUT_S)))
        _until(lambda: _is_found(settings, "gateway") and _is_found(settings, "view"))
        yield Server(
            LIGHTSTREAM,
            f"{discover(settings, 'gateway').address}/v1/traces",
            discover(settings, "view").address,
            lambda: int(client.query("SELECT count(*) FROM spans_raw").scalar()),
        )


@contextmanager
def phoenix(executable: Path, folder: Path) -> Generator[Server]:
    """``phoenix serve`` with SQLite, its default."""
    port, grpc_port = _free_port(), _free_port()
    here = {
        "PHOENIX_WORKING_DIR": str(folder),
        "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(grpc_port),
        "PHOENIX_TELEMETRY_ENABLED": "false",
    }
    url = f"http://127.0.0.1:{port}"
    with _running([str(executable), "serve"], os.environ | here):
        _until(lambda: _answers(f"{url}/healthz"))
        file = folder / "phoenix.db"
        yield Server(PHOENIX, f"{url}/v1/traces", url, lambda: _rows(file, "spans"))


@contextmanager
def mlflow(executable: Path, folder: Path) -> Generator[Server]:
    """``mlflow server`` with SQLite, its default."""
    port, file = _free_port(), folder / "mlflow.db"
    url = f"http://127.0.0.1:{port}"
    artefacts = ["--artifacts-destination", str(folder / "artefacts")]
    command = [str(executable), "server", "--port", str(port), "--backend-store-uri", f"sqlite:///{file}", *artefacts]
    with _running(command, os.environ | {"PATH": f"{executable.parent}:{os.environ['PATH']}"}):
        _until(lambda: _answers(f"{url}/health"))
        headers = {"x-mlflow-experiment-id": MLFLOW_EXPERIMENT}
        yield Server(MLFLOW, f"{url}/v1/traces", url, lambda: _rows(file, "spans"), headers)


@contextmanager
def _running(command: list[str], environment: Mapping[str, str]) -> Generator[None]:
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(STOP_TIMEOUT_S)


def _until(is_there: Callable[[], bool]) -> None:
    give_up_s = time.monotonic() + START_TIMEOUT_S
    while not is_there():
        if time.monotonic() > give_up_s:
            raise TimeoutError(f"a server has not started within {START_TIMEOUT_S:g} s")
        time.sleep(POLL_INTERVAL_S)


def _is_found(settings: Settings, name: str) -> bool:
    return find(settings, name) is not None


def _answers(url: str) -> bool:
    try:
        return httpx.get(url).is_success
    except httpx.TransportError:
        return False


def _rows(file: Path, table: str) -> int:
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
        (count,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608  # our name
    return int(count)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
