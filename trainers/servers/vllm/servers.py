"""vLLM as the policy servers of a training loop, in the trainer's own process."""

from __future__ import annotations

import time
from types import TracebackType

from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.services import discover
from lightstream.runtime.settings import Settings
from lightstream.schemas.records import ResourcesRecord

from ...run.checkpoint import folder_of
from .front import create_app
from .options import VllmOptions
from .server import VllmServer


class VllmServers:
    """Starts vLLM with the first version that is loaded, and ends it with the block. A context manager.

    It is announced as ``policy``, so that the proxy forwards to it. A version is served when :meth:`load` returns.

    Raises:
        ServiceUnavailableError: a policy server runs already, or the port is taken.
    """

    def __init__(self, settings: Settings, options: VllmOptions) -> None:
        self._settings = settings
        self._server = VllmServer(settings, options)
        app = create_app(settings, self._server)
        self._http = HttpServer(
            app, settings, name="policy", port=settings.policy_port, setting="LIGHTSTREAM_POLICY_PORT"
        )

    def __enter__(self) -> VllmServers:
        self._http.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.stop()
        self._server.stop()

    @property
    def server(self) -> VllmServer:
        """The vLLM behind it."""
        return self._server

    @property
    def url(self) -> str:
        """URL on which it answers, without ``/v1``."""
        return self._http.url

    @property
    def address(self) -> str:
        """The proxy's.

        Raises:
            ServiceUnavailableError: none runs.
        """
        return (self._settings.proxy_url or discover(self._settings, "proxy").address).rstrip("/")

    def load(self, resources: ResourcesRecord) -> float:
        """Have vLLM serve a version; returns the seconds until its log-probabilities showed that it does.

        Raises:
            TrainingError, ServiceUnavailableError: see :meth:`VllmServer.load`.
        """
        started = time.monotonic()
        name = resources.model or f"policy@{resources.version}"
        folder = folder_of(self._settings, resources.checkpoint_url or "")
        self._server.load(name, resources.version, str(folder), resources.resources_id, run_id=resources.run_id)
        return time.monotonic() - started

    def pause(self) -> None:
        """Begin no further call. Those under way go on: :meth:`load` waits for them where weights are exchanged."""
        self._server.gate.close()

    def resume(self) -> None:
        """Begin the calls that wait."""
        self._server.gate.open()

    def version(self) -> int | None:
        """The newest version that is served."""
        return None if self._server.current is None else self._server.current.number
