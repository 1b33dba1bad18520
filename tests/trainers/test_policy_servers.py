"""Before the first rollout, training asks the model server whether it serves the model."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from lightstream.runtime.services import Service, announce
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import ServiceUnavailableError
from lightstream.trainers.run.progress import Progress
from lightstream.trainers.servers import following as policy_servers
from lightstream.trainers.servers.following import check_proxy_alone, wait_until_served


class ModelServer:
    """Lists what it is told to list, as vLLM does, and counts how often it was asked."""

    def __init__(self) -> None:
        self.names: list[str] | None = []
        self.asked = threading.Semaphore(0)
        self.keys: list[str | None] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.keys.append(self.headers["Authorization"])
                names = outer.names
                self.send_response(200 if self.path == "/v1/models" and names is not None else 404)
                self.end_headers()
                self.wfile.write(json.dumps({"data": [{"id": name} for name in names or ()]}).encode())
                outer.asked.release()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # its name
                """Says nothing."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1"


@pytest.fixture
def server() -> Iterator[ModelServer]:
    server = ModelServer()
    thread = threading.Thread(target=server.http.serve_forever)
    thread.start()
    yield server
    server.http.shutdown()
    thread.join()
    server.http.server_close()


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_servers, "SERVED_TIMEOUT_S", 0.3)
    monkeypatch.setattr(policy_servers, "SAY_AFTER_S", 0.0)


def settings_of(tmp_path: Path, url: str, **changes: str) -> Settings:
    return Settings.load(data_dir=tmp_path, llm_upstream_url=url, llm_upstream_api_key="secret", **changes)


def test_a_server_of_another_model_is_named_with_what_it_serves(tmp_path: Path, server: ModelServer) -> None:
    server.names = ["somebody/elses"]
    said: list[str] = []
    with pytest.raises(ServiceUnavailableError, match="'policy@0' is not served") as caught:
        wait_until_served(settings_of(tmp_path, server.url), "policy@0", Progress(said.append))
    assert "lists: somebody/elses" in caught.value.message
    assert "policy server" in (caught.value.next_step or "")
    assert said == [f"Waiting until 'policy@0' is served: the model server at {server.url} lists: somebody/elses."]
    assert set(server.keys) == {"Bearer secret"}


def test_training_begins_once_the_model_is_listed(
    tmp_path: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy_servers, "SERVED_TIMEOUT_S", 60.0)

    def load() -> None:
        server.asked.acquire()
        server.names = ["policy@0"]

    loads = threading.Thread(target=load)
    loads.start()
    assert wait_until_served(settings_of(tmp_path, server.url), "policy@0", Progress(None)) > 0
    loads.join()


def test_a_server_without_a_list_is_trusted(tmp_path: Path, server: ModelServer) -> None:
    server.names = None
    wait_until_served(settings_of(tmp_path, server.url), "policy@0", Progress(None))


def test_the_name_asked_for_is_the_one_that_the_proxy_puts_in_its_place(tmp_path: Path, server: ModelServer) -> None:
    server.names = ["theirs"]
    wait_until_served(settings_of(tmp_path, server.url, llm_model="theirs"), "policy@0", Progress(None))


def test_a_server_that_does_not_answer_is_named(tmp_path: Path) -> None:
    with pytest.raises(ServiceUnavailableError, match=r"http://127\.0\.0\.1:9/v1 does not answer"):
        wait_until_served(settings_of(tmp_path, "http://127.0.0.1:9/v1"), "policy@0", Progress(None))


def test_servers_of_a_training_s_own_need_a_proxy_that_forwards_to_them(tmp_path: Path) -> None:
    settings = Settings.load(data_dir=tmp_path)
    with pytest.raises(ServiceUnavailableError, match="no LLM proxy runs"):
        check_proxy_alone(settings)
    announce(settings, Service("proxy", "http://127.0.0.1:9", os.getpid(), 1))
    check_proxy_alone(settings)
    elsewhere = settings.model_copy(update={"llm_upstream_url": "http://127.0.0.1:9/v1"})
    with pytest.raises(ServiceUnavailableError, match="forwards to a model server that VERL") as caught:
        check_proxy_alone(elsewhere)
    assert "LIGHTSTREAM_LLM_UPSTREAM_URL" in (caught.value.next_step or "")
    announce(settings, Service("policy", "http://127.0.0.1:9", os.getpid(), 1))
    with pytest.raises(ServiceUnavailableError, match=r"policy server \(process \d+\) runs"):
        check_proxy_alone(settings)
