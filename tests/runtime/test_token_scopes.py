"""Each scope of a token opens its endpoints of each server, and no other: a cell is a test.

Endpoints are those of the servers' own route tables, so a new route fails here until it is given a scope.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import grpc
import pyarrow.flight as flight
import pytest
from starlette.applications import Starlette
from starlette.routing import BaseRoute, Mount, Route

from lightstream.producers.llm_proxy.app import create_app as proxy_app
from lightstream.producers.llm_proxy.balancing_upstream import BalancingUpstream
from lightstream.producers.otlp.gateway.budget import ByteBudget
from lightstream.producers.otlp.gateway.grpc_service import SERVICES, grpc_server
from lightstream.producers.otlp.gateway.http_app import create_app as gateway_app
from lightstream.producers.otlp.gateway.http_app import traces_endpoint
from lightstream.producers.otlp.gateway.intake import Intake
from lightstream.producers.otlp.gateway.responses import Signal
from lightstream.runtime.http.access import access_of
from lightstream.runtime.http.tokens import SCOPES
from lightstream.runtime.kafka import KafkaPublisher
from lightstream.runtime.settings import Settings
from lightstream.store_views.materialiser import Materialiser
from lightstream.store_views.server.answering import Answering
from lightstream.store_views.server.app import create_app as view_app
from lightstream.store_views.server.flight_sql import FlightSqlServer
from lightstream.store_views.server.statement import QueryLimits
from lightstream.store_views.stores import InMemoryLightningStore
from lightstream.store_views.stores.http.app import create_app as store_app
from lightstream.trainers.servers.chat_api.guard import guard

Scopes = frozenset[str]
INGEST, READ, SQL, CONTROL, FEEDBACK = (frozenset({name}) for name in ("ingest", "read", "sql", "control", "feedback"))
OPEN: Scopes = frozenset()
"""For endpoints that need no token."""
MODELS = INGEST | READ
AGL = "/v1/agl"

VIEW: Mapping[str, Scopes] = {
    "POST /v1/sql": SQL,
    "POST /v1/feedback": FEEDBACK,
    "GET /v1/queries": SQL,
    "DELETE /v1/queries/{query_id}": SQL,
    "GET /v1/named-queries": READ,
    "GET /v1/positions": READ,
    "GET /v1/rollouts/{rollout_id:path}/explain": READ,
    "GET /v1/releases": READ,
    "POST /v1/releases/{name}": CONTROL,
    "GET /v1/reasons": READ,
    "GET /v1/changes": READ,
    "GET /healthz": OPEN,
    "GET /{page:path}": OPEN,
}
GATEWAY: Mapping[str, Scopes] = {
    **{f"POST /v1/{signal}{slash}": INGEST for signal in ("traces", "logs", "metrics") for slash in ("", "/")},
    "GET /healthz": OPEN,
}
PROXY: Mapping[str, Scopes] = {
    "POST /chat/completions": INGEST,
    "POST /completions": INGEST,
    "POST /embeddings": INGEST,
    "POST /responses": INGEST,
    "POST /messages": INGEST,
    "POST /messages/count_tokens": INGEST,
    "POST /reward": INGEST,
    "GET /models": MODELS,
    "GET /models/{model:path}": MODELS,
    "GET /healthz": OPEN,
}
"""Without what may be before each path."""
POLICY: Mapping[str, Scopes] = {
    "POST /v1/chat/completions": INGEST,
    "POST /v1/completions": INGEST,
    "GET /v1/models": MODELS,
    "GET /v1/models/{name:path}": MODELS,
    "GET /healthz": OPEN,
}
STORE: Mapping[str, Scopes] = {
    f"GET {AGL}/health": OPEN,
    f"GET {AGL}/statistics": READ,
    f"GET {AGL}/capabilities": READ,
    f"GET {AGL}/otlp-traces-endpoint": READ,
    f"POST {AGL}/queues/rollouts/give-back": CONTROL,
    f"POST {AGL}/rollouts/search": READ,
    f"GET {AGL}/rollouts": READ,
    f"GET {AGL}/rollouts/{{rollout_id:segment}}": READ,
    f"POST {AGL}/rollouts/{{rollout_id:segment}}/attempts/search": READ,
    f"GET {AGL}/rollouts/{{rollout_id:segment}}/attempts": READ,
    f"GET {AGL}/rollouts/{{rollout_id:segment}}/attempts/latest": READ,
    f"POST {AGL}/spans/search": READ,
    f"GET {AGL}/spans": READ,
    f"GET {AGL}/resources": READ,
    f"POST {AGL}/workers/search": READ,
    f"GET {AGL}/workers": READ,
    f"GET {AGL}/workers/{{worker_id:segment}}": READ,
    f"POST {AGL}/waits/rollouts": READ,
    f"GET {AGL}/resources/latest": READ,
    f"GET {AGL}/resources/{{resources_id:segment}}": READ,
    f"POST {AGL}/queues/rollouts/dequeue": CONTROL,
    f"POST {AGL}/queues/rollouts/enqueue": CONTROL,
    f"POST {AGL}/rollouts": CONTROL,
    f"POST {AGL}/rollouts/{{rollout_id:segment}}": CONTROL,
    f"POST {AGL}/rollouts/{{rollout_id:segment}}/cancel": CONTROL,
    f"POST {AGL}/rollouts/{{rollout_id:segment}}/attempts": CONTROL,
    f"POST {AGL}/rollouts/{{rollout_id:segment}}/attempts/{{attempt_id:segment}}": CONTROL,
    f"POST {AGL}/spans": INGEST,
    f"POST {AGL}/spans/batch": INGEST,
    f"POST {AGL}/spans/next": INGEST,
    f"POST {AGL}/spans/next/batch": INGEST,
    f"POST {AGL}/resources": CONTROL,
    f"POST {AGL}/resources/{{resources_id:segment}}": CONTROL,
    f"POST {AGL}/workers/{{worker_id:segment}}": CONTROL,
    f"POST {AGL}/workers/{{worker_id:segment}}/heartbeat": CONTROL,
    "GET /resources/latest": CONTROL,
    "GET /resources/{resources_id:segment}": CONTROL,
    "GET /task": CONTROL,
    "POST /rollout": CONTROL,
    "POST /v1/traces": INGEST,
}


def token_of(*scopes: str) -> str:
    return f"token with {' '.join(scopes) or 'nothing'}".replace(" ", "-")


@cache
def settings() -> Settings:
    folder = Path(mkdtemp(prefix="lightstream-scopes-"))
    tables = [
        f'[[token]]\nname = "{scope}"\nsha256 = "{hashlib.sha256(token_of(scope).encode()).hexdigest()}"\n'
        f'scopes = ["{scope}"]\n'
        for scope in SCOPES
    ]
    file = folder / "tokens.toml"
    file.write_text("\n".join(tables))
    return Settings.load(
        data_dir=folder,
        tokens_file=file,
        kafka_bootstrap_servers="127.0.0.1:1",
        publish_timeout_s=0.05,
        store_token="store's own",
        view_token="view's own",
        proxy_token="proxy's own",
        policy_token="policy's own",
        gateway_token="gateway's own",
    )


class _NoIntake:
    async def take(self, *_: Any, **__: Any) -> list[Any]:
        return []

    async def set_aside(self, *_: Any, **__: Any) -> None:
        return


@cache
def apps() -> dict[str, Any]:
    given = settings()
    view_token, materialiser = given.view_token, Materialiser(given)
    assert view_token is not None

    def no_intake() -> Any:
        raise AssertionError("the lifespan does not run")

    async def anything(_: Any) -> Any:
        raise AssertionError("let in")

    policy_routes = [Route(route.split()[1], anything, methods=[route.split()[0]]) for route in POLICY]
    return {
        "view": view_app(materialiser, access=access_of(given, view_token.get_secret_value())),
        "gateway": gateway_app(given, no_intake),
        "proxy": proxy_app(given, BalancingUpstream(given, []), KafkaPublisher(given)),
        "policy": Starlette(routes=policy_routes, middleware=guard(given)),
        "store": store_app(InMemoryLightningStore(), given, traces=traces_endpoint(given, _NoIntake())),
    }


def endpoints(routes: list[BaseRoute], prefix: str = "") -> Iterator[str]:
    for route in routes:
        if isinstance(route, Mount):
            yield from endpoints(route.routes, prefix + route.path)
        else:
            assert isinstance(route, Route), route
            methods = sorted((route.methods or set()) - {"HEAD"})
            yield from (f"{method} {prefix}{route.path}" for method in methods)


EXPECTED = {"view": VIEW, "gateway": GATEWAY, "proxy": PROXY, "policy": POLICY, "store": STORE}
PROXY_PREFIX = re.compile(r"^(/seed/\{run_seed:int\})?(/rollout/\{rollout_id\}/attempt/\{attempt_id\})?(/v1)?(/v1)?")


def needed(server: str, endpoint: str) -> Scopes:
    """Fails for a route that is not in the tables above."""
    if server == "proxy":
        method, path = endpoint.split()
        endpoint = f"{method} {PROXY_PREFIX.sub('', path)}"
    if server == "view" and endpoint.startswith("GET /assets"):
        return OPEN
    return EXPECTED[server][endpoint]


CELLS = [
    (server, endpoint, sent)
    for server, app in apps().items()
    for endpoint in dict.fromkeys(endpoints(app.routes))
    for sent in (*SCOPES, "its own", "none", "another")
]


class _AnsweredError(Exception):
    """The status is known; nobody waits for the rest."""


async def status_of(app: Any, method: str, path: str, token: str) -> int:
    status, has_sent = 0, False

    async def receive() -> dict[str, Any]:
        nonlocal has_sent
        if has_sent:
            await asyncio.Event().wait()  # the client stays
        has_sent = True
        return {"type": "http.request", "body": b"{", "more_body": False}  # no JSON

    async def send(message: Mapping[str, Any]) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
            raise _AnsweredError

    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
    if token:
        headers.append((b"authorization", f"Bearer {token}".encode()))
    scope = {
        "type": "http",
        "http_version": "1.1",
        "asgi": {"version": "3.0"},
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "scheme": "http",
        "query_string": b"",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    with suppress(Exception, BaseExceptionGroup):  # what the endpoint does once it was let in is not asked here
        await app(scope, receive, send)
    return status


@pytest.mark.anyio
@pytest.mark.parametrize(("server", "endpoint", "sent"), CELLS)
async def test_a_scope_opens_its_endpoints(server: str, endpoint: str, sent: str) -> None:
    scopes = needed(server, endpoint)
    method, template = endpoint.split()
    path = re.sub(r"\{\w+:int\}", "1", template)
    path = re.sub(r"\{\w+(:\w+)?\}", "x", path)
    token = {"its own": f"{server}'s own", "none": "", "another": "view's own" if server != "view" else "nobody's"}.get(
        sent, token_of(sent)
    )
    status = await asyncio.wait_for(status_of(apps()[server], method, path, token), 120)
    if scopes is OPEN and (sent in ("its own", "none") or server != "store"):
        assert status not in (401, 403)
    elif sent in ("none", "another"):
        assert status == 401
    elif sent == "its own" or sent in (scopes or READ):
        assert status not in (401, 403)
    else:
        assert status == 403


@pytest.mark.parametrize("sent", [*SCOPES, "its own", "none", "another"])
@pytest.mark.parametrize("signal", Signal)
def test_grpc_needs_ingest(signal: Signal, sent: str) -> None:
    code = asyncio.run(
        _export(signal, {"its own": "gateway's own", "none": "", "another": "x"}.get(sent, token_of(sent)))
    )
    allowed, known = sent in ("ingest", "its own"), sent not in ("none", "another")
    refused = grpc.StatusCode.PERMISSION_DENIED if known else grpc.StatusCode.UNAUTHENTICATED
    assert code == (grpc.StatusCode.OK if allowed else refused)


async def _export(signal: Signal, token: str) -> grpc.StatusCode:
    publisher = KafkaPublisher(settings())
    intake = Intake(settings(), publisher)
    server = grpc_server(settings(), intake, ByteBudget(1 << 20, 5.0))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = channel.unary_unary(f"/{SERVICES[signal]}/Export")
            answer = call(b"", metadata=(("authorization", f"Bearer {token}"),) if token else None)
            return await answer.code()
    finally:
        await server.stop(None)
        intake.close()
        publisher.close()


FLIGHT_CALLS = {
    "list_flights": lambda client, options: list(client.list_flights(options=options)),
    "get_flight_info": lambda client, options: client.get_flight_info(
        flight.FlightDescriptor.for_command(b"x"), options
    ),
    "get_schema": lambda client, options: client.get_schema(flight.FlightDescriptor.for_command(b"x"), options),
    "do_get": lambda client, options: client.do_get(flight.Ticket(b"x"), options).read_all(),
    "do_action": lambda client, options: list(client.do_action(flight.Action("x", b""), options)),
    "list_actions": lambda client, options: list(client.list_actions(options)),
}


@pytest.fixture(scope="module")
def flight_port() -> Iterator[int]:
    loop = asyncio.new_event_loop()
    running = threading.Thread(target=loop.run_forever)
    running.start()
    materialiser = Materialiser(settings())
    answering = Answering(lambda: materialiser.database.cursor())
    access = access_of(settings(), "view's own")
    server = FlightSqlServer("grpc://127.0.0.1:0", answering, materialiser, loop, QueryLimits(), access)
    yield server.port
    server.shutdown()
    loop.call_soon_threadsafe(loop.stop)
    running.join()
    loop.close()


@pytest.mark.parametrize("sent", [*SCOPES, "its own", "none", "another"])
@pytest.mark.parametrize("call", FLIGHT_CALLS)
def test_flight_sql_needs_sql(flight_port: int, call: str, sent: str) -> None:
    token = {"its own": "view's own", "none": "", "another": "x"}.get(sent, token_of(sent))
    headers: Any = [(b"authorization", f"Bearer {token}".encode())] if token else []  # the stubs want text
    refused: type[Exception] | None = None
    with flight.FlightClient(f"grpc://127.0.0.1:{flight_port}") as client:
        try:
            FLIGHT_CALLS[call](client, flight.FlightCallOptions(headers=headers))  # type: ignore[no-untyped-call]  # pyarrow's stubs
        except Exception as error:  # noqa: BLE001  # what one that was let in asks for is nonsense
            told = f"{type(error).__name__} {error}"  # get_schema raises an OSError that names the status
            names = (flight.FlightUnauthenticatedError, flight.FlightUnauthorizedError)
            refused = next((name for name in names if re.search(name.__name__[6:-5], told)), None)
    if sent in ("sql", "its own"):
        assert refused is None
    elif sent in ("none", "another"):
        assert refused is flight.FlightUnauthenticatedError
    else:
        assert refused is flight.FlightUnauthorizedError


def test_the_tables_have_every_endpoint_and_no_other() -> None:
    for server, app in apps().items():
        found = set(endpoints(app.routes))
        if server == "proxy":
            found = {f"{each.split()[0]} {PROXY_PREFIX.sub('', each.split()[1])}" for each in found}
        found = {each for each in found if not each.startswith("GET /assets")}
        assert found == set(EXPECTED[server]), server
