"""A real view with runs in it, in this process, and a browser."""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
import uuid
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import pytest
import uvicorn
from playwright.sync_api import Browser, Page, expect, sync_playwright
from starlette.applications import Starlette

from lightstream.runtime.http.access import Access
from lightstream.runtime.kafka import KafkaPublisher, create_topics
from lightstream.runtime.settings import Settings
from lightstream.store_views.materialiser import Materialiser
from lightstream.store_views.server.app import create_app
from lightstream.store_views.server.dashboard import BUILT
from tests.store_views.dashboard.run_records import log_of_runs
from tests.support.waiting import eventually

TOKEN = "a token of the view"  # of a test
PATIENCE_MS = 60_000
"""Only against hanging: the machine may be busy."""


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
        future.result(300)
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


@pytest.fixture
def private_url(private_settings: Settings) -> Iterator[str]:
    """Address of a view of an empty log on ``private_broker``, which the test may stop."""
    materialiser = Materialiser(private_settings)
    materialiser.start()
    try:
        with _served(create_app(materialiser)) as url:
            yield url
    finally:
        materialiser.stop()


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


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium."""
    path = shutil.which("chromium") or shutil.which("google-chrome")
    assert path is not None, "these tests need Chromium: apt-get install chromium"
    assert (BUILT / "index.html").is_file(), "the dashboard is not built: make dashboard"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A page that may only ask its own host, and complain of nothing. A test asks for it after its server."""
    theme: Literal["light", "dark"] = getattr(request, "param", "light")
    context = browser.new_context(viewport={"width": 1360, "height": 900}, color_scheme=theme)
    context.set_default_timeout(PATIENCE_MS)
    expect.set_options(timeout=PATIENCE_MS)
    page = context.new_page()
    complaints: list[str] = []
    hosts: set[str] = set()
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
    page.on("request", lambda asked: hosts.add(urlsplit(asked.url).hostname or asked.url.partition(":")[0]))
    yield page
    context.close()
    assert hosts <= {"127.0.0.1", "data"}
    expected = ["401 (Unauthorized)", "400 (Bad Request)", "404 (Not Found)", "ERR_INTERNET_DISCONNECTED"]
    expected += ["The view was updated while this page was open"]  # which a page says, too
    assert [text for text in complaints if not any(text_part in text for text_part in expected)] == []


@pytest.fixture
def sized(page: Page, request: pytest.FixtureRequest) -> Page:
    """A page of the width that the test is parametrized by, in pixels (``at_each_width``)."""
    page.set_viewport_size({"width": request.param, "height": 900})
    return page


def open_page(page: Page, url: str) -> None:
    """Go there, and wait until every question of the page is answered."""
    page.goto(url)
    expect(page.locator("h1")).to_be_visible()
    expect(page.get_by_text("Asking the view …")).to_have_count(0)
