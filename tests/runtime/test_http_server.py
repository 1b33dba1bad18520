"""Access to HTTP servers, and clients that disconnect."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import nullcontext
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lightstream.runtime.http.access import Access, bearer_token, own_names
from lightstream.runtime.http.server import CLIENT_GONE, ClientGoneError, HttpServer, unless_disconnected
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError
from tests.support.waiting import eventually


@pytest.mark.parametrize("token", ["s3cret", "schlüssel", "鍵"])
def test_only_the_token_itself_is_accepted(token: str) -> None:
    access = Access(token, "another")
    as_starlette_decodes_it = token.encode().decode("latin-1")
    assert access.refusal(token, scopes=()) is None
    assert access.refusal(as_starlette_decodes_it, scopes=()) is None
    assert access.refusal("", token, scopes=()) is None
    for sent in ("", token[:-1], token + "x", token.upper() + "X", "?" * len(token)):
        assert access.refusal(sent, scopes=()) == 401
    assert access.refusal(scopes=()) == 401


def test_without_a_token_everybody_has_access() -> None:
    assert Access().refusal(scopes=()) is None
    assert Access().refusal("anything", scopes=()) is None


def test_an_empty_token_is_a_token() -> None:
    assert not Access("").is_open


@pytest.mark.parametrize(
    ("authorization", "token"),
    [("Bearer abc", "abc"), (" bearer  abc ", "abc"), ("Basic abc", ""), ("abc", ""), ("Bearer", ""), ("", "")],
)
def test_the_bearer_token_of_a_header(authorization: str, token: str) -> None:
    assert bearer_token({"authorization": authorization}) == token


def test_no_header_is_no_token() -> None:
    assert bearer_token({}) == ""


@pytest.mark.parametrize(
    ("host", "access", "allowed", "is_refused"),
    [
        ("0.0.0.0", Access(), False, True),
        ("::", Access(), False, True),
        ("10.0.0.1", Access(), False, True),
        ("0.0.0.0", Access(), True, False),
        ("127.0.0.1", Access(), False, False),
        ("0.0.0.0", Access("t"), False, False),
    ],
)
def test_an_open_server_that_others_reach_is_refused(
    tmp_path: Path, host: str, access: Access, allowed: bool, is_refused: bool
) -> None:
    settings = Settings.load(data_dir=tmp_path, host=host, open_to_network=allowed)
    with pytest.raises(SettingsError) if is_refused else nullcontext() as raised:
        access.require_token(settings, "store server", "LIGHTSTREAM_STORE_TOKEN")
    if raised is not None:
        for named in (host, "LIGHTSTREAM_STORE_TOKEN", "LIGHTSTREAM_TOKENS_FILE", "LIGHTSTREAM_OPEN_TO_NETWORK"):
            assert named in str(raised.value)


@pytest.mark.parametrize(
    "host", ["localhost", "view:80", "127.0.0.1:80", "[::1]:80", "own.example.", "Own.Example:1", ""]
)
def test_the_servers_own_pages_and_programs_are_answered(host: str) -> None:
    access = Access(names={"own.example"})
    assert access.foreign_page({"host": host}) is None
    assert access.foreign_page({"host": host, "origin": f"http://{host}"}) is None
    assert access.foreign_page({"host": host, "origin": "http://evil.example"}) is not None


@pytest.mark.parametrize(
    "host", ["rebound.example:80", "rebound.example.", "own.example.evil.example", "127.0.0.1.nip.io", "[x"]
)
def test_a_name_that_is_not_the_servers_is_refused_with_and_without_an_origin(host: str) -> None:
    access = Access(names={"own.example"})
    for headers in ({"host": host}, {"host": host, "origin": f"http://{host}"}):
        assert "LIGHTSTREAM_ALLOWED_HOSTS" in (access.foreign_page(headers) or "")


def test_who_has_a_token_and_is_no_page_may_use_any_name() -> None:
    access = Access("t")
    assert access.foreign_page({"host": "view.cluster.example"}) is None
    assert access.foreign_page({"host": "view.cluster.example", "origin": "http://view.cluster.example"}) is not None


def test_a_servers_names_are_those_of_the_settings_and_of_the_machine() -> None:
    settings = Settings.load(
        allowed_hosts="a.example, B.example:80,", view_url="http://view.example:8081/", host="h.example"
    )
    assert own_names(settings) == {"a.example", "b.example", "view.example", "h.example", socket.gethostname().lower()}


class _Server:
    """Answers one request when it is told to, and notes the outcome."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.ended: list[str] = []

    async def answer(self, request: Request) -> Response:
        await request.body()
        try:
            return await unless_disconnected(request, self._work(request.url.path))
        except ClientGoneError:
            self.ended.append("gone")
            return Response(status_code=CLIENT_GONE)
        except KeyError as error:
            return Response(str(error), 418)

    async def _work(self, path: str) -> Response:
        self.began.append(path)
        try:
            if path == "/for-ever":
                await asyncio.Event().wait()
            if path == "/fails":
                raise KeyError(path)
        finally:
            self.ended.append("work")
        return Response(b"done")


@pytest.fixture
async def served(tmp_path: Path) -> AsyncGenerator[tuple[_Server, str]]:
    server = _Server()
    app = Starlette(routes=[Route("/{path}", server.answer, methods=["POST"])])
    http = HttpServer(app, Settings.load(data_dir=tmp_path), name="test")
    yield server, await asyncio.to_thread(http.start)
    await asyncio.to_thread(http.stop)


async def test_work_is_cancelled_when_its_client_disconnects(served: tuple[_Server, str]) -> None:
    server, url = served
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as connection:
        connection.sendall(b"POST /for-ever HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nhi")
        await asyncio.to_thread(eventually, lambda: server.began)
    await asyncio.to_thread(eventually, lambda: server.ended == ["work", "gone"])


async def test_a_client_that_stays_gets_its_answer_and_its_errors(served: tuple[_Server, str]) -> None:
    server, url = served
    async with httpx.AsyncClient(base_url=url) as client:
        assert (await client.post("/at-once", content=b"hi")).content == b"done"
        assert (await client.post("/fails", content=b"hi")).status_code == 418
        assert (await client.post("/at-once", content=b"hi")).content == b"done"  # on the same connection
    assert server.ended == ["work"] * 3
