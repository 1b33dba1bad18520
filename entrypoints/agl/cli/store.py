"""``agl store``: a store over HTTP, by itself."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
from collections.abc import Iterable

from lightstream.runtime.interrupts import Interrupts
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError
from lightstream.store_views.stores import KafkaLightningStore
from lightstream.stream_processors.core.lifecycle import Limits

from ..logging import setup_logging
from ..store import InMemoryLightningStore, LightningStore, LightningStoreServer
from ..utils.metrics import ConsoleMetricsBackend, MetricsBackend, MultiMetricsBackend, PrometheusMetricsBackend

__all__ = ["main"]

logger = logging.getLogger(__name__)


def main(argv: Iterable[str] | None = None) -> int:
    """Serve until SIGINT or SIGTERM.

    Raises:
        SettingsError: a value is not used here.
        ServiceUnavailableError: the port is taken, or Kafka does not answer.
    """
    parser = argparse.ArgumentParser(prog="agl store", description="Serve a store over HTTP.")
    parser.add_argument(
        "--host", help="address to listen on (default: all where a token is asked for, else this machine's alone)"
    )
    parser.add_argument("--port", type=int, default=4747, help="port to listen on; 0 is any free one")
    parser.add_argument(
        "--cors-origin",
        dest="cors_origins",
        action="append",
        help="an origin whose pages may ask from a browser; '*' for all; may be repeated",
    )
    parser.add_argument("--log-level", default="INFO", choices=["DEBUG", "INFO", "WARNING", "ERROR"])
    parser.add_argument(
        "--tracker", nargs="+", choices=["prometheus", "console"], help="count the store's calls, there"
    )
    parser.add_argument("--n-workers", type=int, default=1, help="1: a thread serves")
    parser.add_argument(
        "--backend", choices=["memory", "kafka", "mongo"], default="memory", help="where rollouts are (default: memory)"
    )
    parser.add_argument("--mongo-uri", help="of no use: there is no backend on MongoDB")
    given = parser.parse_args(None if argv is None else list(argv))
    if given.n_workers != 1:
        raise SettingsError(
            f"--n-workers is {given.n_workers}, and one process serves a store.",
            next_step="For several servers run `agl store --backend kafka` on several ports.",
        )
    if given.backend == "mongo" or given.mongo_uri is not None:
        raise SettingsError(
            "there is no store on MongoDB.", next_step="A store that lasts is on Kafka: --backend kafka."
        )
    setup_logging(given.log_level)
    settings = Settings.load()
    store: LightningStore
    if given.backend == "kafka":
        store = KafkaLightningStore(settings)
        asyncio.run(store.start())
    else:
        store = InMemoryLightningStore(limits=Limits.of(settings))
    server = LightningStoreServer(
        store,
        given.host or _default_host(settings),
        given.port,
        given.cors_origins,
        settings=settings,
        tracker=_tracker(given.tracker or ()),
    )
    try:
        with Interrupts(signal.SIGTERM) as interrupts:
            asyncio.run(server.start())
            logger.info("the store answers on %s", server.endpoint)
            interrupts.wait()
    except KeyboardInterrupt:
        logger.info("the store's server ends")
    finally:
        asyncio.run(server.stop())
        asyncio.run(store.close())
    return 0


def _default_host(settings: Settings) -> str:
    """All addresses, as there; loopback where the server would answer anyone."""
    asks_for_token = settings.store_token is not None or settings.tokens_file is not None
    return "0.0.0.0" if asks_for_token or settings.open_to_network else "127.0.0.1"  # noqa: S104  # as there


def _tracker(names: Iterable[str]) -> MetricsBackend | None:
    makers = {"prometheus": PrometheusMetricsBackend, "console": ConsoleMetricsBackend}
    backends = [makers[name]() for name in dict.fromkeys(names)]
    return MultiMetricsBackend(backends) if backends else None
