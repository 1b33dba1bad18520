"""TLS of every server and client of ours: right and wrong certificates, and one that is replaced while they run."""

from __future__ import annotations

import asyncio
import http.client
import logging
import os
import re
import socket
import ssl
import sys
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from urllib.parse import urlsplit

import grpc
import pyarrow.flight as flight
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from lightstream.producers.llm_proxy.openai_upstream import HttpUpstream
from lightstream.producers.llm_proxy.upstream import UpstreamError
from lightstream.producers.otlp.gateway.grpc_service import SERVICES
from lightstream.producers.otlp.gateway.responses import Signal
from lightstream.runtime.artefacts import resolve
from lightstream.runtime.http import handshakes
from lightstream.runtime.http.access import Access, own_names
from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.services import discover
from lightstream.runtime.settings import Settings
from lightstream.runtime.tls import certificate_problem, client_context, read_certificate, server_context
from lightstream.schemas.errors import LightstreamError, ServiceUnavailableError, SettingsError
from lightstream.store_views.client import ViewClient
from lightstream.store_views.stores.http import LightningStoreClient
from lightstream.trainers import make_tiny_model
from lightstream.trainers.servers.following import check_model_server
from lightstream.up import PolicyOptions, Stack
from tests.e2e.test_shared_cluster import PROGRAM, ROOT
from tests.e2e.test_shared_cluster import TIMEOUT_S as TRAINING_TIMEOUT_S
from tests.support.certificates import Authority
from tests.support.forked import Forked
from tests.support.program import lightstream
from tests.support.waiting import eventually

TIMEOUT_S = 60.0
SHORT_S = 4.0
"""Until a certificate expires that a running server has taken."""
HTTP = ("view", "policy", "proxy", "gateway", "store", "worker")
GRPC = "gateway-grpc"
FLIGHT = "flight-sql"


@dataclass(frozen=True)
class Place:
    """Servers with TLS.

    Attributes:
        settings: of their clients.
        file: their certificate and its key.
        right, wrong: the authority that clients know, and another.
    """

    settings: Settings
    file: Path
    right: Authority
    wrong: Authority

    def trusting(self, authority: Authority) -> Settings:
        return self.settings.model_copy(update={"tls_ca_file": authority.file})


@pytest.fixture(scope="module")
def place(kafka_servers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """All processes of `lightstream up`, and a store server."""
    folder = tmp_path_factory.mktemp("tls")
    right, wrong = Authority(folder), Authority(folder, "wrong")
    file = folder / "server.pem"
    right.put(file)
    settings = Settings.load(
        data_dir=folder / "data",
        kafka_bootstrap_servers=kafka_servers,
        topic_prefix="tls.",
        tls_certificate_file=file,
        tls_ca_file=right.file,
        gateway_port=0,
        gateway_grpc_port=0,
    )
    programs = {"store": [sys.executable, "-m", "lightstream.cli", "store"]}
    stack = Stack(
        settings,
        services=("worker", "view", "policy", "proxy", "gateway"),
        policy=PolicyOptions(),
        programs=programs,
    )
    with stack:
        yield Place(stack.settings, file, right, wrong)


def _http(url: str, settings: Settings) -> None:
    with urllib.request.urlopen(f"{url}/healthz", timeout=TIMEOUT_S, context=client_context(settings)) as answer:  # noqa: S310  # https
        assert answer.status == 200


def _grpc(url: str, settings: Settings) -> None:
    assert settings.tls_ca_file is not None
    credentials = grpc.ssl_channel_credentials(settings.tls_ca_file.read_bytes())
    with grpc.secure_channel(urlsplit(url).netloc, credentials) as channel:
        export: Any = channel.unary_unary(f"/{SERVICES[Signal.TRACES]}/Export")
        export(ExportTraceServiceRequest().SerializeToString(), timeout=TIMEOUT_S)


def _flight(url: str, settings: Settings) -> None:
    assert settings.tls_ca_file is not None
    with flight.connect(url, tls_root_certs=settings.tls_ca_file.read_text()) as client, suppress(NotImplementedError):
        list(client.list_actions(flight.FlightCallOptions(timeout=TIMEOUT_S)))


ASK: Mapping[str, Callable[[str, Settings], None]] = {**dict.fromkeys(HTTP, _http), GRPC: _grpc, FLIGHT: _flight}
REFUSED = {
    "unknown": (r"authority that is not known here", "certificate verify failed|CERTIFICATE_VERIFY_FAILED"),
    "other host": (r"is for another host", "not in peer certificate|Hostname Verification|CERTIFICATE_VERIFY_FAILED"),
    "expired": (r"has expired", "certificate verify failed|CERTIFICATE_VERIFY_FAILED"),
}
"""What a client of ours says, and what those of gRPC say."""


def refusal(place: Place, server: str, settings: Settings) -> str:
    """What a client says that does not trust the server; empty where it has its answer."""
    url = discover(place.settings, server).address
    try:
        ASK[server](url, settings)
    except (OSError, grpc.RpcError, flight.FlightError) as error:
        problem = certificate_problem(error, url)
        return str(problem or error)
    return ""


@pytest.mark.parametrize("server", ASK)
def test_each_server_with_each_certificate(place: Place, server: str) -> None:
    expected = {case: texts[0] if server in HTTP else texts[1] for case, texts in REFUSED.items()}
    scheme = {GRPC: "https", FLIGHT: "grpc+tls"}.get(server, "https")
    assert discover(place.settings, server).address.startswith(f"{scheme}://127.0.0.1:")

    place.right.put(place.file)
    assert refusal(place, server, place.settings) == ""
    assert _matches(expected["unknown"], refusal(place, server, place.trusting(place.wrong)))

    before = _Kept(place, server)
    place.wrong.put(place.file)
    assert _matches(expected["unknown"], refusal(place, server, place.settings))
    assert refusal(place, server, place.trusting(place.wrong)) == ""
    before.works()

    place.right.put(place.file, "lightstream.example")
    assert _matches(expected["other host"], refusal(place, server, place.settings))

    place.right.put(place.file, seconds=SHORT_S)
    eventually(lambda: _matches(expected["expired"], refusal(place, server, place.settings)), what="it has expired")

    place.right.put(place.file)
    place.file.write_text("no certificate")
    assert _matches(expected["expired"], refusal(place, server, place.settings))  # what was there before holds
    place.right.put(place.file)
    assert refusal(place, server, place.settings) == ""


def _matches(pattern: str, text: str) -> bool:
    return re.search(pattern, text, re.IGNORECASE) is not None


class _Kept:
    """A connection that is open while the certificate is replaced."""

    def __init__(self, place: Place, server: str) -> None:
        address = urlsplit(discover(place.settings, server).address)
        assert address.hostname
        self._is_http = server in HTTP
        self._connection = http.client.HTTPSConnection(
            address.hostname, address.port, timeout=TIMEOUT_S, context=client_context(place.settings)
        )
        if self._is_http:
            self.works()

    def works(self) -> None:
        if self._is_http:
            self._connection.auto_open = 0 if self._connection.sock else 1
            self._connection.request("GET", "/healthz")
            answer = self._connection.getresponse()
            answer.read()
            assert answer.status == 200


def test_the_processes_work_together(place: Place) -> None:
    """The view is asked by our client, the policy server by the proxy; nobody is restarted."""
    place.right.put(place.file)
    view = ViewClient(place.settings)
    assert view.query("SELECT 1").scalar() == 1
    view.close()
    url = f"{discover(place.settings, 'proxy').address}/v1/models"
    with urllib.request.urlopen(url, timeout=TIMEOUT_S, context=client_context(place.settings)) as answer:  # noqa: S310  # https
        assert answer.status == 200


def test_a_training_works(kafka_servers: str, tmp_path: Path) -> None:
    """Trainer, Runner, proxy, policy server, view; the agent's own client knows the authority by ``SSL_CERT_FILE``.

    Each server asks for a token, and the file has that of a reader alone: the processes have those of their folder.
    """
    authority, file, tokens = Authority(tmp_path), tmp_path / "server.pem", tmp_path / "tokens.toml"
    authority.put(file)
    tokens.write_text(f'[[token]]\nname = "a reader"\nsha256 = "{sha256(b"mine").hexdigest()}"\nscopes = ["read"]\n')
    make_tiny_model(tmp_path / "model", seed=0)
    settings = Settings.load(
        data_dir=tmp_path / "data",
        kafka_bootstrap_servers=kafka_servers,
        topic_prefix=f"t{uuid.uuid4().hex[:12]}.",
        tls_certificate_file=file,
        tls_ca_file=authority.file,
        tokens_file=tokens,
    )
    with Stack(settings, services=("worker", "view", "policy", "proxy")) as stack:
        environment = os.environ | stack.settings.to_environment() | {"SSL_CERT_FILE": str(authority.file)}
        with Forked(["-c", PROGRAM, str(tmp_path / "model")], environment, ROOT) as program:
            _, output = program.communicate(TRAINING_TIMEOUT_S)
            assert program.returncode == 0, output
        view = ViewClient(stack.settings, patience_s=120.0)
        made = view.query("SELECT count(*) FROM training_steps WHERE run_id = 'shared'", at_least="now").scalar()
        view.close()
        assert made == 2
        for name, path in (("view", "/v1/positions"), ("policy", "/v1/models"), ("proxy", "/v1/models")):
            asked = discover(stack.settings, name).address + path
            with pytest.raises(OSError, match="401"):
                urllib.request.urlopen(asked, timeout=TIMEOUT_S, context=client_context(stack.settings))  # noqa: S310  # https


# --- clients of ours

seen: list[str] = []
"""Paths that the server below was asked for."""


async def _said(request: Request) -> Response:
    seen.append(request.url.path)
    return PlainTextResponse("yes")


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Place]:
    """One server, which the settings name as every other."""
    right, wrong = Authority(tmp_path), Authority(tmp_path, "wrong")
    file = tmp_path / "server.pem"
    right.put(file)
    settings = Settings.load(data_dir=tmp_path / "data", tls_certificate_file=file)
    server = HttpServer(Starlette(routes=[Route("/{any:path}", _said)]), settings, name="proxy")
    url = server.start()
    named = {"view_url": url, "store_url": url, "llm_upstream_url": url, "tls_ca_file": right.file}
    seen.clear()
    yield Place(settings.model_copy(update=named), file, right, wrong)
    server.stop()


def _view(settings: Settings, _: Path) -> None:
    client = ViewClient(settings)
    try:
        client.positions()
    finally:
        client.close()


def _upstream(settings: Settings, _: Path) -> None:
    async def ask() -> None:
        upstream = HttpUpstream(settings)
        await upstream.start()
        try:
            await upstream.send("GET", f"{settings.view_url}/v1/models", None, api_key=None, streams=False)
        finally:
            await upstream.stop()

    asyncio.run(ask())


def _store(settings: Settings, _: Path) -> None:
    async def ask() -> None:
        store = LightningStoreClient(settings=settings)
        try:
            await store.get_rollout_by_id("any")
        finally:
            await store.close()

    asyncio.run(ask())


def _artefact(settings: Settings, folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LIGHTSTREAM_TLS_CA_FILE", str(settings.tls_ca_file))
        resolve(f"{settings.view_url}/file", sha256(b"yes").hexdigest(), 3, Path(mkdtemp(dir=folder)))


def _model_server(settings: Settings, _: Path) -> None:
    check_model_server(settings)


CLIENTS: dict[str, Callable[[Settings, Path], None]] = {
    "of the view": _view,
    "of the store": _store,
    "of the proxy, to a model server": _upstream,
    "of a training, to a model server": _model_server,
    "of an artefact": _artefact,
}


@pytest.mark.parametrize("client", CLIENTS)
def test_each_client_with_each_certificate(alone: Place, client: str, tmp_path: Path) -> None:
    def refusal_of(settings: Settings) -> str:
        """What it says; what it says of an answer that is none does not count."""
        seen.clear()
        try:
            CLIENTS[client](settings, tmp_path)
        except (LightstreamError, UpstreamError, ValueError) as error:
            return "" if seen else str(error)
        assert seen
        return ""

    assert refusal_of(alone.settings) == ""
    unknown = refusal_of(alone.trusting(alone.wrong))
    assert "is of an authority that is not known here" in unknown
    assert "LIGHTSTREAM_TLS_CA_FILE" in unknown
    alone.right.put(alone.file, "lightstream.example")
    other = refusal_of(alone.settings)
    assert "is for another host" in other
    assert "127.0.0.1" in other
    alone.right.put(alone.file, seconds=SHORT_S)
    eventually(lambda: "has expired" in refusal_of(alone.settings), what="it has expired")
    alone.right.put(alone.file)
    assert refusal_of(alone.settings) == ""


def test_clients_that_shake_no_hands_make_room(alone: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of them is hung up on; another client is answered."""
    monkeypatch.setattr(handshakes, "HANDSHAKES_MAX", 3)
    address = urlsplit(alone.settings.view_url or "")
    silent = [socket.create_connection((address.hostname or "", address.port or 0), TIMEOUT_S) for _ in range(4)]
    try:
        assert silent[0].recv(1) == b""
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            _ask(alone, client_context(alone.trusting(alone.wrong)))
        _ask(alone, client_context(alone.settings))
    finally:
        for one in silent:
            one.close()


def test_a_ca_file_is_read_again(alone: Place) -> None:
    """An authority that is replaced: the old one is trusted no longer."""
    context = client_context(alone.settings)
    alone.wrong.put(alone.file)
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        _ask(alone, context)
    alone.right.file.write_bytes(alone.wrong.file.read_bytes())
    _ask(alone, context)
    alone.right.file.write_text("nothing")
    _ask(alone, context)


def _ask(place: Place, context: ssl.SSLContext) -> None:
    with urllib.request.urlopen(f"{place.settings.view_url}/any", timeout=TIMEOUT_S, context=context):  # noqa: S310  # https
        pass


def test_clients_show_a_certificate_where_one_is_asked_for(alone: Place) -> None:
    mutual = alone.settings.model_copy(update={"tls_client_ca_file": alone.right.file})
    server = HttpServer(Starlette(routes=[Route("/{any:path}", _said)]), mutual, name="mutual")
    at = {"view_url": server.start()}
    try:
        _ask(alone, client_context(mutual))
        assert CLIENTS["of the proxy, to a model server"](mutual.model_copy(update=at), alone.file) is None
        with pytest.raises(ServiceUnavailableError):
            ViewClient(alone.settings.model_copy(update=at), patience_s=0).positions()
    finally:
        server.stop()


# --- what a server says at its start


def _files(folder: Path) -> tuple[Authority, Path]:
    authority, file = Authority(folder), folder / "server.pem"
    authority.put(file)
    return authority, file


def _bad(case: str, authority: Authority, file: Path) -> dict[str, Path]:
    """The settings of a case."""
    key = file.with_name("key.pem")
    match case:
        case "missing":
            return {"tls_certificate_file": file.with_name("no.pem")}
        case "no PEM":
            file.write_text("x")
        case "damaged":
            file.write_text(file.read_text().replace("MII", "AAA"))
        case "no key":
            return {"tls_certificate_file": authority.file}
        case "key of another":
            authority.key(key)
            return {"tls_certificate_file": file, "tls_key_file": key}
        case "key with a password":
            key.write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----")
            return {"tls_certificate_file": file, "tls_key_file": key}
        case "expired":
            authority.put(file, seconds=-1)
        case "key alone":
            return {"tls_key_file": file}
        case "authorities of clients":
            key.write_text("x")
            return {"tls_certificate_file": file, "tls_client_ca_file": key}
        case _:
            raise AssertionError(case)
    return {"tls_certificate_file": file}


BAD = {
    "missing": "cannot be read: No such file",
    "no PEM": "has no certificate in PEM",
    "damaged": "cannot be used",
    "no key": "has no private key in PEM",
    "key of another": "is not the key of the certificate",
    "key with a password": "has a password",
    "expired": "has expired",
    "key alone": "TLS_CERTIFICATE_FILE is not",
    "authorities of clients": "has no certificates in PEM",
}


@pytest.mark.parametrize("case", BAD)
def test_a_server_names_what_is_wrong(tmp_path: Path, case: str) -> None:
    settings = Settings.load(data_dir=tmp_path, **_bad(case, *_files(tmp_path)))
    with pytest.raises(SettingsError, match=BAD[case]) as refused:
        HttpServer(Starlette(), settings, name="any")
    assert "LIGHTSTREAM_TLS_" in refused.value.message
    assert refused.value.next_step


def test_a_command_ends_with_1_and_a_sentence(tmp_path: Path) -> None:
    authority, file = _files(tmp_path)
    authority.put(file, seconds=-1)
    done = lightstream(tmp_path / "data", "store", "--memory", LIGHTSTREAM_TLS_CERTIFICATE_FILE=str(file))
    assert done.returncode == 1
    assert f"LIGHTSTREAM_TLS_CERTIFICATE_FILE, {file}, has expired." in done.stderr
    assert "Traceback" not in done.stderr


def test_a_broken_replacement_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority, file = _files(tmp_path)
    context = server_context(Settings.load(data_dir=tmp_path, tls_certificate_file=file))
    assert context is not None
    file.write_bytes(authority.file.read_bytes())
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_side=True)
    assert caplog.text.count("what was there before holds") == 1
    assert "has no private key in PEM" in caplog.text


def test_a_certificate_for_a_name_is_announced_by_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority, file = _files(tmp_path)
    settings = Settings.load(data_dir=tmp_path, tls_certificate_file=file)
    authority.put(file, "*.corp.example", "lightstream.corp.example")
    server = HttpServer(Starlette(), settings, name="any")
    server.stop()
    assert server.url.startswith("https://lightstream.corp.example:")
    assert "lightstream.corp.example" in own_names(settings)
    authority.put(file, "*.corp.example")
    other = HttpServer(Starlette(), settings, name="any")
    other.stop()
    assert other.url.startswith("https://127.0.0.1:")
    assert "is for *.corp.example, and not for 127.0.0.1" in caplog.text
    certificate = read_certificate(settings)
    assert certificate is not None
    assert certificate.is_for("a.corp.example")
    assert not certificate.is_for("a.b.corp.example")


def test_tls_alone_lets_anyone_in(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Beyond this machine a token, or a client's certificate, is needed; a token without TLS is warned of."""
    authority, file = _files(tmp_path)
    open_to_all = Settings.load(data_dir=tmp_path, host="0.0.0.0", tls_certificate_file=file)  # the point
    with pytest.raises(SettingsError, match="would answer anyone"):
        Access().require_token(open_to_all, "view", "LIGHTSTREAM_VIEW_TOKEN")
    mutual = open_to_all.model_copy(update={"tls_client_ca_file": authority.file})
    Access().require_token(mutual, "view", "LIGHTSTREAM_VIEW_TOKEN")
    Access("token").require_token(open_to_all, "view", "LIGHTSTREAM_VIEW_TOKEN")
    assert caplog.text == ""
    plain = open_to_all.model_copy(update={"tls_certificate_file": None})
    Access("token").require_token(plain, "view", "LIGHTSTREAM_VIEW_TOKEN")
    assert "speaks no TLS" in caplog.text
