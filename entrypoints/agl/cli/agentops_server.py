"""``agl agentops``: answers requests of AgentOps' clients to its service, so that nothing leaves this machine.

``AgentOpsTracer`` needs none; this is for programs that call ``agentops.init`` themselves
(``AGENTOPS_API_ENDPOINT=http://127.0.0.1:8002``). What they send is thrown away: traces come by a tracer, or by OTLP.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.settings import Settings

from ..logging import setup_logging

__all__ = ["main"]

logger = logging.getLogger(__name__)


async def _token(_request: Request) -> Response:
    return JSONResponse({"token": "none", "project_id": "none"})


async def _anything(request: Request) -> Response:
    return JSONResponse({"path": request.url.path})


def main(argv: Iterable[str] | None = None) -> int:
    """Serve until SIGINT or SIGTERM.

    Raises:
        ServiceUnavailableError: the port is taken.
    """
    parser = argparse.ArgumentParser(prog="agl agentops", description="Answer AgentOps' clients on this machine.")
    parser.add_argument("--daemon", action="store_true", help="of no effect: it ends with its process")
    parser.add_argument("--port", type=int, default=8002, help="port to listen on; 0 is any free one")
    given = parser.parse_args(None if argv is None else list(argv))
    setup_logging()
    app = Starlette(
        routes=[
            Route("/v3/auth/token", _token, methods=["POST"]),
            Route("/{path:path}", _anything, methods=["GET", "POST"]),
        ]
    )
    settings = Settings.load().model_copy(update={"host": "127.0.0.1"})
    server = HttpServer(app, settings, name="agentops", port=given.port, setting="--port", announced=False)
    logger.info("AgentOps' clients are answered on %s", server.url)
    server.run()
    return 0
