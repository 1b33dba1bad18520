"""Faults of running processes, and the alerts that Debian's Prometheus raises for each: its own, and no stranger's."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import httpx
import pytest

from lightstream.broker import EmbeddedBroker
from lightstream.runtime.services import discover, find
from lightstream.runtime.settings import Settings
from lightstream.up import Stack
from tests.support.small_disk import MIB, fill, small_disk
from tests.support.waiting import eventually

from .monitoring import every_server
from .prometheus import Prometheus

pytestmark = pytest.mark.prometheus

LEAST_BYTES = 64 * MIB
CALL = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
HEADERS = {"x-lightstream-rollout-id": "r1", "x-lightstream-attempt-id": "r1-a1"}


class BrokenModel(BaseHTTPRequestHandler):
    """A model server that answers every call with an error."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(500)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the library's name
        pass


@contextmanager
def broken_model() -> Generator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), BrokenModel)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class Place:
    """Processes with a disk and a broker of their own."""

    stack: Stack
    broker: EmbeddedBroker
    disk: Path

    def url(self, service: str) -> str:
        return discover(self.stack.settings, service).address

    def call_model(self) -> None:
        answer = httpx.post(f"{self.url('proxy')}/v1/chat/completions", json=CALL, headers=HEADERS)
        assert answer.status_code == 500, answer.text

    def kill(self, service: str) -> None:
        """Kill it, and wait until another one is in its place."""
        before = discover(self.stack.settings, service).pid
        os.kill(before, signal.SIGKILL)

        def is_another() -> bool:
            found = find(self.stack.settings, service)
            return found is not None and found.pid != before

        eventually(is_another, what=f"another {service}")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("faults")
    with (
        small_disk(folder / "disk", 1200 * MIB) as disk,
        EmbeddedBroker(Settings.load(data_dir=folder / "broker")) as broker,
        broken_model() as model,
    ):
        settings = Settings.load(
            data_dir=disk,
            kafka_bootstrap_servers=broker.start(),
            llm_upstream_url=model,
            disk_free_bytes_min=LEAST_BYTES,
            topic_partitions=2,
        )
        with every_server(settings) as stack:
            yield Place(stack, broker, disk)


def is_ready(url: str) -> bool:
    return httpx.get(f"{url}/readyz").status_code == 200


@pytest.fixture
def prometheus(place: Place, tmp_path: Path) -> Iterator[Prometheus]:
    """One that begins when nothing is wrong, and asks every five seconds."""
    for service in place.stack.names:
        eventually(partial(is_ready, place.url(service)), what=f"{service} is ready")
    targets = [place.url(service).removeprefix("http://") for service in place.stack.names]
    prometheus = Prometheus(tmp_path / "prometheus", targets, at_once=True, interval="5s")
    with prometheus.running():
        everyone = partial(prometheus.values, 'sum(up{job="lightstream"})')
        eventually(lambda: everyone() == [len(targets)], what="all processes are asked")
        eventually(prometheus.rules_evaluated, what="rules evaluated")
        eventually(lambda: prometheus.alerts() == set(), what="no alert before the fault")
        yield prometheus


def raised(prometheus: Prometheus, alert: str, again: Callable[[], object] = lambda: None) -> set[str]:
    """The alerts beside this one, once it is raised; ``again`` is called until then."""

    def is_raised() -> bool:
        again()
        return alert in prometheus.alerts()

    eventually(is_raised, what=alert)
    return prometheus.alerts() - {alert}


def test_a_process_that_hangs_is_down(place: Place, prometheus: Prometheus) -> None:
    gateway = discover(place.stack.settings, "gateway").pid
    os.kill(gateway, signal.SIGSTOP)
    try:
        assert raised(prometheus, "LightstreamProcessDown") == set()
    finally:
        os.kill(gateway, signal.SIGCONT)


def test_a_process_that_is_killed_again_and_again(place: Place, prometheus: Prometheus) -> None:
    beside = raised(prometheus, "LightstreamRestarts", partial(place.kill, "gateway"))
    assert beside <= {"LightstreamProcessDown", "LightstreamNotReady"}, "while it is away"


def test_a_model_server_that_fails(place: Place, prometheus: Prometheus) -> None:
    """Its errors are the proxy's answers, too, and its calls are no training data."""
    beside = raised(prometheus, "LightstreamModelServerErrors", place.call_model)
    assert beside <= {"LightstreamServerErrors", "LightstreamCallsDropped"}
    assert raised(prometheus, "LightstreamServerErrors", place.call_model) <= {
        "LightstreamModelServerErrors",
        "LightstreamCallsDropped",
    }


def test_a_disk_that_fills(place: Place, prometheus: Prometheus) -> None:
    ballast = fill(place.disk, 2 * LEAST_BYTES)
    try:
        assert raised(prometheus, "LightstreamDiskFills") == set()
        fill(place.disk, LEAST_BYTES // 2)
        beside = raised(prometheus, "LightstreamDiskFull")
        assert beside <= {"LightstreamDiskFills", "LightstreamNotReady"}, "the other at the moment of the change"
        eventually(lambda: "LightstreamDiskFills" not in prometheus.alerts(), what="one alert for one disk")
    finally:
        ballast.unlink()
    eventually(lambda: prometheus.alerts() == set(), what="nothing is wrong again")


def test_kafka_that_is_away(place: Place, prometheus: Prometheus) -> None:
    """The last test: the broker does not come back."""
    place.broker.stop()
    assert raised(prometheus, "LightstreamKafkaSilent") == {"LightstreamNotReady"}, (
        prometheus.get("alerts"),
        place.stack.names,
        [place.url(n) for n in place.stack.names],
    )
