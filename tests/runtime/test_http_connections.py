"""Connections of a server: silent and slow clients are hung up on, those that wait for an answer are not."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from lightstream.runtime.files import raise_file_limit
from lightstream.runtime.http import connections
from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.settings import Settings

PATIENCE_S = 3.0
WAIT_S = 300.0


class Served:
    """A server whose one answer waits until it is told to come."""

    def __init__(self, settings: Settings) -> None:
        self.asked = asyncio.Event()
        self.answer = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        routes = [Route("/slow", self._slow), Route("/echo", self._echo, methods=["POST"])]
        self.server = HttpServer(Starlette(routes=routes), settings, name="tests", announced=False)
        self.server.start()

    async def _slow(self, _request: Request) -> Response:
        self._loop = asyncio.get_running_loop()
        await self.answer.wait()
        return PlainTextResponse("at last")

    async def _echo(self, request: Request) -> Response:
        return PlainTextResponse(await request.body())

    def let_it_answer(self) -> None:
        """Have ``/slow`` answer."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self.answer.set)

    def connect(self) -> socket.socket:
        """A connection on which nothing was sent yet."""
        url = httpx.URL(self.server.url)
        return socket.create_connection((url.host, url.port or 80), WAIT_S)


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr(connections, "REQUEST_PATIENCE_S", PATIENCE_S)
    served = Served(Settings.load(data_dir=tmp_path))
    yield served
    served.server.stop()


def received(connection: socket.socket) -> bytes:
    """All until the server closes the connection."""
    pieces = []
    with closing(connection):
        try:
            while piece := connection.recv(65536):
                pieces.append(piece)
        except ConnectionResetError:
            pass
    return b"".join(pieces)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"POST /echo HTTP/1.1\r\nhost: 127.0.0.1\r\n",
        b"POST /echo HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 10\r\n\r\nabc",
    ],
    ids=["nothing", "half a head", "half a body"],
)
def test_who_sends_no_whole_request_is_hung_up_on(served: Served, sent: bytes) -> None:
    connection = served.connect()
    connection.sendall(sent)
    assert received(connection) == b""
    assert httpx.post(f"{served.server.url}/echo", content=b"x", timeout=WAIT_S).text == "x"


def test_who_waits_for_an_answer_is_not(served: Served) -> None:
    waiting = served.connect()
    waiting.sendall(b"GET /slow HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
    for _ in range(2):  # each is hung up on after the patience, so that time passes
        assert received(served.connect()) == b""
    served.let_it_answer()
    assert received(waiting).endswith(b"at last")


def test_an_endless_head_is_refused(served: Served) -> None:
    connection = served.connect()
    connection.sendall(b"GET /echo HTTP/1.1\r\nx: " + b"a" * connections.HEAD_BYTES_MAX + b"b")
    assert received(connection).startswith(b"HTTP/1.1 431 ")


def test_silent_connections_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "connections_max", lambda: 10)
    served = Served(Settings.load(data_dir=tmp_path))
    with ExitStack() as opened:
        silent = [opened.enter_context(served.connect()) for _ in range(30)]
        assert httpx.post(f"{served.server.url}/echo", content=b"x", timeout=WAIT_S).text == "x"
        assert received(silent[0]) == b"", "the first is hung up on, long before its patience ends"
    served.server.stop()


def test_the_limit_of_open_files_is_raised() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, hard), hard))
    try:
        assert connections.connections_max() == min(512, hard) * 3 // 4
        raise_file_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
