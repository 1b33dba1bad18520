"""A real view with runs in it, in this process, and a browser."""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn
from starlette.applications import Starlette

from lightstream.runtime.http_access import Access
from lightstream.runtime.kafka import KafkaPublisher, create_topics
from lightstream.runtime.settings import Settings
from lightstream.store_views.materialiser import Materialiser
from lightstream.store_views.server.app import create_app
from tests.store_views.dashboard.run_records import log_of_runs
from tests.support.waiting import eventually

TOKEN = "a token of the view"  # of a test


@pytest.fixture(scope="module")
def view_settings(kafka_servers: str, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Settings with topics of their own, in which the runs lie."""
    settings = Settings.load(
        kafka_bootstrap_servers=kafka_servers,
        topic_prefix=f"t{uuid.uuid4().hex[:12]}.",
        topic_partitions=1,
        data_dir=tmp_path_factory.mktemp("dashboard"),
    )
    create_topics(settings)
    publisher = KafkaPublisher(settings)
    written = [publisher.publish(topic, key, record) for topic, key, record in log_of_runs(time.time_ns())]
    for future in written:
        future.result(60)
    publisher.close()
    return settings


@pytest.fixture(scope="module")
def materialiser(view_settings: Settings) -> Iterator[Materialiser]:
    """A materialiser that has read the log of the runs."""
    materialiser = Materialiser(view_settings)
    materialiser.start()
    try:
        assert not materialiser.positions.wait_for(materialiser.end_offsets_now(), 120)
        yield materialiser
    finally:
        materialiser.stop()


@pytest.fixture(scope="module")
def view_url(materialiser: Materialiser) -> Iterator[str]:
    """Address of the view's server."""
    with _served(create_app(materialiser)) as url:
        yield url


@pytest.fixture(scope="module")
def guarded_url(materialiser: Materialiser) -> Iterator[str]:
    """Address of one that asks for ``TOKEN``."""
    with _served(create_app(materialiser, access=Access(TOKEN))) as url:
        yield url


@contextmanager
def _served(app: Starlette) -> Generator[str, None, None]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=5))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            eventually(lambda: server.started, what="the view's server")
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture(scope="session")
def screenshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder for pictures of the pages: that of the docs where LIGHTSTREAM_TEST_SCREENSHOTS names it."""
    folder = Path(os.environ.get("LIGHTSTREAM_TEST_SCREENSHOTS") or tmp_path_factory.mktemp("screenshots"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder
