"""Answers of every HTTP server of ours besides its own: whether the process is alive, and ready, and its metrics.

``GET /healthz``   200 while the process works; without an answer, whoever keeps it running starts it again
``GET /readyz``    200 while its answers are of now, else 503 and the reasons
``GET /metrics``   metrics for Prometheus (:mod:`lightstream.runtime.metrics`)

None needs a token: they tell nothing of what is in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

from anyio.to_thread import run_sync
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.core import GaugeMetricFamily, Metric
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from .metrics import Readings, counted, exposition
from .own_spans import OwnSpans

Check: TypeAlias = Callable[[], str | None]
"""Says what is wrong, or ``None``. May take a few seconds; called on any thread."""


@runtime_checkable
class CheckWithReadings(Protocol):
    """A :data:`Check` that has metrics, too."""

    def __call__(self) -> str | None:
        """As any check."""
        ...

    def readings(self) -> Iterable[Metric]:
        """As :data:`lightstream.runtime.metrics.Readings`."""
        ...


class WithHealth:
    """An ASGI application with these paths in front; its own paths stay its own.

    Args:
        name: of the server, in its metrics.
        alive: says why the process does no work any more, though this server answers.
        ready: say why answers are not of now. The metrics of those that have some are told, too.
        metrics: further ones.
        spans: gets a span of each request.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        name: str,
        alive: Check | None = None,
        ready: Sequence[Check] = (),
        metrics: Sequence[Readings] = (),
        spans: OwnSpans | None = None,
    ) -> None:
        self._app = app
        self._name = name
        self._spans = spans
        self._alive = [] if alive is None else [alive]
        self._ready = list(ready)
        of_checks = [check.readings for check in ready if isinstance(check, CheckWithReadings)]
        self._metrics = [self._readiness, *of_checks, *metrics]
        own = {getattr(route, "path", "") for route in getattr(app, "routes", ())}
        answers = {"/healthz": self._healthz, "/readyz": self._readyz, "/metrics": self._exposition}
        self._answers = {path: answer for path, answer in answers.items() if path not in own}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = self._answers.get(scope["path"]) if scope["method"] in ("GET", "HEAD") else None
        if answer is None:
            await counted(self._name, self._app, scope, receive, send, self._spans)
        else:
            await (await run_sync(answer))(scope, receive, send)

    def _healthz(self) -> Response:
        return _verdict(self._alive)

    def _readyz(self) -> Response:
        return _verdict(self._ready)

    def _exposition(self) -> Response:
        return Response(exposition(self._metrics), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    def _readiness(self) -> Iterable[Metric]:
        ready = GaugeMetricFamily("lightstream_ready", "1 while the answers are of now.", labels=["server"])
        ready.add_metric([self._name], not _reasons(self._ready))
        return [ready]


def _verdict(checks: Sequence[Check]) -> Response:
    reasons = _reasons(checks)
    if reasons:
        return JSONResponse({"status": "unready", "reasons": reasons}, status_code=503)
    return JSONResponse({"status": "ok"})


def _reasons(checks: Sequence[Check]) -> list[str]:
    return [reason for check in checks if (reason := check()) is not None]
