"""``lightstream vllm``: vLLM in place of the policy server, as a process of its own."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.kafka import KafkaContact, bootstrap_servers
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import LightstreamError

from ..version_watcher import VersionWatcher
from .front import create_app
from .options import VllmOptions
from .server import VllmServer

logger = logging.getLogger(__name__)


def run(settings: Settings, options: VllmOptions, *, checkpoint: Path | None = None, run_id: str = "") -> None:
    """Serve the policy with vLLM until SIGTERM or Ctrl-C; announced as ``policy``.

    Args:
        settings: address, limits, cluster.
        options: how to run vLLM.
        checkpoint: weights to serve as ``policy@0`` until a trainer publishes some.
        run_id: follow the versions of this run only; empty: of the run that published last before the first call came.
            A vLLM has one run's model at a time.

    Raises:
        ServiceUnavailableError: the port is taken, vLLM does not start, or no Kafka is named or running; or the topic
            ``resources`` is missing, was deleted meanwhile, or is not for this user.
        TrainingError: ``checkpoint`` cannot be loaded.
    """
    bootstrap_servers(settings)  # says now, rather than in a thread, that there is no Kafka
    server = VllmServer(settings, options)
    failures: list[LightstreamError] = []

    def fail(failure: LightstreamError) -> None:
        failures.append(failure)
        http.stop()

    versions = _Versions(server)
    watcher = VersionWatcher(settings, versions, run_id=run_id, on_failure=fail)
    http = HttpServer(
        create_app(settings, server),
        settings,
        name="policy",
        port=settings.policy_port,
        setting="LIGHTSTREAM_POLICY_PORT",
        ready=[KafkaContact(settings), watcher.unready],
    )
    try:
        if checkpoint is not None:
            server.load("policy@0", 0, str(checkpoint))
        watcher.start()
        try:
            http.run()
        finally:
            watcher.stop()
    finally:
        versions.stop()
        server.stop()
    if failures:
        raise failures[0]


class _Versions:
    """The newest version of one run, loaded in a thread of its own: that takes a while.

    It is the run that published last, until a call is answered; what other runs publish later is passed over.
    """

    def __init__(self, server: VllmServer) -> None:
        self.is_catching_up = False
        self._server = server
        self._newest: dict[str, tuple[str, int, str, str]] = {}
        self._last = ""
        self._passed_over: set[str] = set()
        self._wanted = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="lightstream-vllm-versions", daemon=True)
        self._thread.start()

    def announce(
        self,
        name: str,
        number: int,
        checkpoint_url: str,
        resources_id: str = "",
        *,
        run_id: str,
        also_called: str = "",
    ) -> None:
        """A version became known."""
        self._newest[run_id] = (name, number, checkpoint_url, resources_id)
        self._last = run_id

    def caught_up(self) -> None:
        """All that was announced before us is known."""
        self.is_catching_up = False

    def load_newest(self) -> None:
        """Have it served."""
        self._wanted.set()

    def stop(self) -> None:
        """Load no more."""
        self._stopping = True
        self._wanted.set()

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            if self._stopping:
                return
            last = self._last
            run_id = self._server.run_id or last
            if last != run_id and last not in self._passed_over:
                self._passed_over.add(last)
                logger.warning("run %r is not served: this vLLM serves the model of run %r alone", last, run_id)
            newest = self._newest.get(run_id)
            if newest is not None:
                try:
                    self._server.load(*newest, run_id=run_id)
                except LightstreamError as error:
                    logger.error("%s cannot be served: %s", newest[0], error)
