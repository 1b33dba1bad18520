"""Clients of the view, for other processes: one that blocks, one for event loops."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import httpx

from lightstream.runtime.http.client import Retries, reason_of
from lightstream.runtime.http.own_tokens import token_of
from lightstream.runtime.kafka import Position
from lightstream.runtime.services import discover
from lightstream.runtime.settings import Settings
from lightstream.runtime.tls import certificate_problem, client_context
from lightstream.schemas.errors import QueryError, ServiceUnavailableError, SettingsError

from .column_names import distinct_names

if TYPE_CHECKING:
    import pyarrow as pa

LANE_HEADER = "x-lightstream-lane"
TRUNCATED_HEADER = "x-lightstream-truncated"
REBUILDING_HEADER = "x-lightstream-rebuilding"
"""These headers are named here once more, since clients do without the server's packages."""
_JSON = {"content-type": "application/json"}
CONNECT_TIMEOUT_S = 5.0

AtLeast: TypeAlias = Mapping[str, Mapping[int, int]] | Iterable[Position] | Literal["now"]
"""Records that an answer must reflect: offsets by topic and partition, where records landed, or all there is now."""


Params: TypeAlias = Sequence[Any] | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class QueryResult:
    """An answer: column names, DuckDB type names, rows.

    Attributes:
        truncated: rows beyond the limit were cut off.
        rebuilding: rows are missing, since the view has not read all of the log yet.
    """

    columns: list[str]
    types: list[str]
    rows: list[list[Any]]
    truncated: bool
    rebuilding: bool = False

    def dicts(self) -> list[dict[str, Any]]:
        """Each row by column name; of columns with one name, later ones are ``name_1``, ``name_2``, …"""
        names = distinct_names(self.columns)
        return [dict(zip(names, row, strict=True)) for row in self.rows]

    def scalar(self) -> Any:
        """The first column of the first row.

        Raises:
            QueryError: there is none.
        """
        if not self.rows or not self.rows[0]:
            raise QueryError("the answer has no rows.")
        return self.rows[0][0]


@dataclass(frozen=True, slots=True)
class ArrowResult:
    """As :class:`QueryResult`, as an Arrow table."""

    table: pa.Table
    truncated: bool
    rebuilding: bool


class ViewClient:
    """Queries the view server that ``view_url`` names, else the one announced here. Blocks.

    Args:
        patience_s: how long to wait for an unavailable server (restarting, say) before giving up.
        lane: whose statements these are (``stores``, ``dashboard``, ``others``): they wait only for others of it.
        name: of a view that was started with one (``lightstream view --name bi``), on this machine.
    """

    def __init__(self, settings: Settings, *, patience_s: float = 30.0, lane: str = "others", name: str = "") -> None:
        self._settings = settings
        self._name = name
        self._patience_s = patience_s
        self._http = httpx.Client(headers=_headers(settings, lane), verify=client_context(settings))

    def query(
        self,
        sql: str,
        at_least: AtLeast | None = None,
        *,
        params: Params | None = None,
        timeout_s: float = 30.0,
        wait_s: float = 30.0,
        rows_max: int | None = None,
    ) -> QueryResult:
        """Run one reading statement.

        Args:
            at_least: what the answer must reflect; waited for up to ``wait_s`` seconds.
            params: values of the statement's ``?`` (a sequence) or ``$name`` (a mapping): no text in them is SQL.
            timeout_s: seconds the statement may run.

        Raises:
            QueryError: the statement was refused, failed, or took too long.
            SettingsError: the view asks for a token, and the settings have another one, or none; or its certificate is
                not to be trusted.
            ServiceUnavailableError: no server answers, or it has not caught up in time.
        """
        body = _body(sql, at_least, params, timeout_s, wait_s, rows_max)
        return QueryResult(**self._request("POST", "/v1/sql", body, timeout_s + wait_s + CONNECT_TIMEOUT_S))

    def arrow(
        self,
        sql: str,
        at_least: AtLeast | None = None,
        *,
        params: Params | None = None,
        timeout_s: float = 30.0,
        wait_s: float = 30.0,
        rows_max: int | None = None,
    ) -> ArrowResult:
        """As :meth:`query`; the answer is an Arrow table, of DuckDB's types."""
        import pyarrow as pa

        body = _body(sql, at_least, params, timeout_s, wait_s, rows_max) | {"format": "arrow"}
        response = self._send("POST", "/v1/sql", body, timeout_s + wait_s + CONNECT_TIMEOUT_S)
        truncated, rebuilding = (response.headers[name] == "true" for name in (TRUNCATED_HEADER, REBUILDING_HEADER))
        return ArrowResult(pa.ipc.open_stream(response.content).read_all(), truncated, rebuilding)

    def feedback(self, scores: Sequence[Mapping[str, Any]], *, timeout_s: float = 90.0) -> list[dict[str, Any]]:
        """Score rollouts, calls and pairs, as ``POST /v1/feedback`` takes them (docs/feedback.md), up to 1,000 at once.

        Returns:
            For each score where it went, or ``{"error": {"type", "message", "next_step"}}``.

        Raises:
            SettingsError: as :meth:`query`; or the token may not score.
            ServiceUnavailableError: no server answers, or Kafka does not. Sent again with its key a score counts once.
        """
        body = list(scores)
        results: list[dict[str, Any]] = self._send("POST", "/v1/feedback", body, timeout_s).json()["results"]
        return results

    def wait_for(self, at_least: AtLeast = "now", *, wait_s: float = 30.0) -> None:
        """Block until the view reflects ``at_least``.

        Raises:
            ServiceUnavailableError: it did not within ``wait_s`` seconds.
        """
        self.query("SELECT 1", at_least, wait_s=wait_s)

    def positions(self) -> dict[str, Any]:
        """Return how far the view has read: ``positions``, ``end`` and ``lag``, each topic -> partition -> number.

        ``lag_records`` is the sum of the lags. ``kafka_silent_s`` is the time since Kafka was last heard of, in seconds
        (0 while it answers, ``None`` if it never did): the log may have grown since. ``rebuilding`` is the progress of
        a view that has not read all of the log yet, else ``None``.
        """
        return self._request("GET", "/v1/positions", None, CONNECT_TIMEOUT_S)

    def close(self) -> None:
        """Close connections."""
        self._http.close()

    def _request(self, method: str, path: str, body: dict[str, Any] | None, timeout_s: float) -> dict[str, Any]:
        values: dict[str, Any] = self._send(method, path, body, timeout_s).json()
        return values

    def _send(self, method: str, path: str, body: Any, timeout_s: float) -> httpx.Response:
        retries, timeout = Retries(self._patience_s), httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S)
        # Not by httpx, which raises for NaN: the view says what is wrong with it.
        content = None if body is None else json.dumps(body)
        while True:
            try:
                url = _url(self._settings, path, self._name)
                return _answered(self._http.request(method, url, content=content, headers=_JSON, timeout=timeout))
            except (httpx.TransportError, ServiceUnavailableError) as error:
                pause_s = _pause_s(retries, error)
            time.sleep(pause_s)


class AsyncViewClient:
    """As :class:`ViewClient`, for the tasks of one event loop."""

    def __init__(self, settings: Settings, *, patience_s: float = 30.0, lane: str = "others") -> None:
        self._settings = settings
        self._patience_s = patience_s
        self._http = httpx.AsyncClient(headers=_headers(settings, lane), verify=client_context(settings))

    async def query(
        self,
        sql: str,
        at_least: AtLeast | None = None,
        *,
        params: Params | None = None,
        timeout_s: float = 30.0,
        wait_s: float = 30.0,
        rows_max: int | None = None,
    ) -> QueryResult:
        """As :meth:`ViewClient.query`. Being cancelled ends the request."""
        body = _body(sql, at_least, params, timeout_s, wait_s, rows_max)
        retries = Retries(self._patience_s)
        timeout = httpx.Timeout(timeout_s + wait_s + CONNECT_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
        while True:
            try:
                url = _url(self._settings, "/v1/sql")
                return QueryResult(**_answered(await self._http.post(url, json=body, timeout=timeout)).json())
            except (httpx.TransportError, ServiceUnavailableError) as error:
                pause_s = _pause_s(retries, error)
            await asyncio.sleep(pause_s)

    async def close(self) -> None:
        """Close connections."""
        await self._http.aclose()


def _headers(settings: Settings, lane: str) -> dict[str, str]:
    token = token_of(settings, "view_token")
    # What is near is not worth compressing.
    return {LANE_HEADER: lane, "accept-encoding": "identity"} | (
        {} if token is None else {"authorization": f"Bearer {token}"}
    )


def _pause_s(retries: Retries, error: httpx.TransportError | ServiceUnavailableError) -> float:
    """Seconds until the next try.

    Raises:
        SettingsError: the certificate is not to be trusted.
        ServiceUnavailableError: the patience is over, or the server refused.
    """
    if isinstance(error, httpx.TransportError):
        if (problem := certificate_problem(error, _origin(error.request.url))) is not None:
            raise problem from error
        error = ServiceUnavailableError(f"the view does not answer: {reason_of(error)}.")
    pause_s = None if isinstance(error, _NotCaughtUpError) else retries.pause_s()
    if pause_s is None:
        raise error
    return pause_s


def _origin(url: httpx.URL) -> str:
    return f"{url.scheme}://{url.netloc.decode('ascii')}"


class _NotCaughtUpError(ServiceUnavailableError):
    """The server answered with a refusal."""


def _answered(response: httpx.Response) -> httpx.Response:
    """The response, if it is an answer."""
    if response.status_code == HTTPStatus.OK:
        return response
    try:
        error = response.json()["error"]
        message, next_step = str(error["message"]), str(error["next_step"])
    except (ValueError, KeyError, TypeError):
        message, next_step = f"the view answered {response.status_code}: {response.text[:200]}", ""
    if response.status_code == HTTPStatus.SERVICE_UNAVAILABLE:
        raise _NotCaughtUpError(message, next_step=next_step)
    if response.status_code == HTTPStatus.BAD_GATEWAY:  # the view for people's statements is being started again
        raise ServiceUnavailableError(message, next_step=next_step)
    if response.status_code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        raise SettingsError(message, next_step=next_step)
    raise QueryError(message, next_step=next_step)


def _wire(at_least: AtLeast) -> Any:
    """The JSON form."""
    if isinstance(at_least, str):
        return at_least
    if isinstance(at_least, Mapping):
        return {topic: {str(p): offset for p, offset in offsets.items()} for topic, offsets in at_least.items()}
    topics: dict[str, dict[str, int]] = {}
    for place in at_least:
        offsets = topics.setdefault(place.topic, {})
        offsets[str(place.partition)] = max(place.offset, offsets.get(str(place.partition), -1))
    return topics


def _url(settings: Settings, path: str, name: str = "") -> str:
    address = discover(settings, f"view-{name}").address if name else settings.view_url
    return (address or discover(settings, "view").address).rstrip("/") + path


def _body(
    sql: str, at_least: AtLeast | None, params: Params | None, timeout_s: float, wait_s: float, rows_max: int | None
) -> dict[str, Any]:
    body: dict[str, Any] = {"sql": sql, "timeout_s": timeout_s, "wait_s": wait_s}
    if params is not None:
        body["params"] = dict(params) if isinstance(params, Mapping) else list(params)
    if at_least is not None:
        body["at_least"] = _wire(at_least)
    if rows_max is not None:
        body["rows_max"] = rows_max
    return body
