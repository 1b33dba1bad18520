"""What every HTTP server of ours answers besides its own: whether the process is alive, and ready.

``GET /healthz``   200 while the process works; without an answer, whoever keeps it running starts it again
``GET /readyz``    200 while its answers are of now, else 503 and the reasons

Neither needs a token: they tell nothing of what is in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from anyio.to_thread import run_sync
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["Check", "WithHealth"]

Check: TypeAlias = Callable[[], str | None]
"""Says what is wrong, or ``None``. May take a few seconds; called on any thread."""


class WithHealth:
    """An ASGI application with these paths in front; those that it has itself stay its own.

    Args:
        alive: says why the process does no work any more, though this server answers.
        ready: say why answers are not of now.
    """

    def __init__(self, app: ASGIApp, *, alive: Check | None = None, ready: Sequence[Check] = ()) -> None:
        self._app = app
        own = {getattr(route, "path", "") for route in getattr(app, "routes", ())}
        checks = {"/healthz": [] if alive is None else [alive], "/readyz": list(ready)}
        self._checks = {path: asked for path, asked in checks.items() if path not in own}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        checks = None
        if scope["type"] == "http" and scope["method"] in ("GET", "HEAD"):
            checks = self._checks.get(scope["path"])
        app = self._app if checks is None else await _answer(checks)
        await app(scope, receive, send)


async def _answer(checks: Sequence[Check]) -> Response:
    reasons = [reason for check in checks if (reason := await run_sync(check)) is not None]
    if reasons:
        return JSONResponse({"status": "unready", "reasons": reasons}, status_code=503)
    return JSONResponse({"status": "ok"})
