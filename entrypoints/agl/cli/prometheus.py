"""``agl prometheus``: the metrics that several processes keep in one folder, for Prometheus."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Iterable
from pathlib import Path

from prometheus_client import make_asgi_app
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError

from ..logging import setup_logging
from ..utils.metrics import MULTIPROCESS_FOLDER, get_prometheus_registry

__all__ = ["create_prometheus_app", "ensure_prometheus_dir", "main"]

logger = logging.getLogger(__name__)


def ensure_prometheus_dir() -> str:
    """The folder of ``PROMETHEUS_MULTIPROC_DIR``, which is made if it is missing.

    Raises:
        ValueError: the variable is not set.
    """
    folder = os.environ.get(MULTIPROCESS_FOLDER)
    if not folder:
        raise ValueError(
            f"{MULTIPROCESS_FOLDER} is not set: name the folder in which the processes keep their metrics."
        )
    Path(folder).mkdir(parents=True, exist_ok=True)
    return folder


def create_prometheus_app(metrics_path: str = "/v1/prometheus") -> Starlette:
    """Make the application: the metrics at ``metrics_path``, and ``/health``.

    Raises:
        ValueError: the path is not below ``/``.
    """
    path = metrics_path.rstrip("/")
    if not path.startswith("/"):
        raise ValueError(f"metrics_path must be a path below /, such as /v1/prometheus, not {metrics_path!r}.")

    async def health(_request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    metrics = make_asgi_app(registry=get_prometheus_registry())
    return Starlette(routes=[Route("/health", health), Mount(path, metrics)])


def main(argv: Iterable[str] | None = None) -> int:
    """Serve until SIGINT or SIGTERM.

    Raises:
        SettingsError: no folder is named, or the path is none.
        ServiceUnavailableError: the port is taken.
    """
    parser = argparse.ArgumentParser(prog="agl prometheus", description="Serve the metrics of several processes.")
    parser.add_argument("--host", default="0.0.0.0", help="address to listen on (default: all)")  # noqa: S104  # as there
    parser.add_argument("--port", type=int, default=4748, help="port to listen on; 0 is any free one")
    parser.add_argument("--metrics-path", default="/v1/prometheus", help="where the metrics are")
    parser.add_argument("--log-level", default="INFO", choices=["DEBUG", "INFO", "WARNING", "ERROR"])
    parser.add_argument("--access-log", action="store_true", help="log each request")
    given = parser.parse_args(None if argv is None else list(argv))
    setup_logging(given.log_level)
    if given.access_log:
        setup_logging(given.log_level, submodule_levels={"uvicorn.access": "INFO"})
    try:
        ensure_prometheus_dir()
        app = create_prometheus_app(given.metrics_path)
    except ValueError as error:
        raise SettingsError(str(error)) from error
    settings = Settings.load().model_copy(update={"host": given.host})
    server = HttpServer(app, settings, name="metrics", port=given.port, setting="--port", announced=False)
    logger.info("the metrics are on %s%s", server.url, given.metrics_path)
    server.run()
    return 0
