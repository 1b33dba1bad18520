"""Spans of our own work, on demand: requests at our servers, and steps of trainings, to a collector of yours.

They never enter our own topics: their resource says ``lightstream.own``, and the gateway throws such spans away.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from urllib.parse import urlsplit

from lightstream.schemas.distribution import installed_version
from lightstream.schemas.errors import SettingsError

from .services import find
from .settings import Settings

OWN_RESOURCE = "lightstream.own"
"""Attribute of the resource of our own spans."""


class OwnSpans:
    """Exports spans of one process, in batches, on a thread of its own. For any thread.

    Args:
        url: of the collector's OTLP/HTTP traces.
        process: ``service.name`` is ``lightstream-<process>``.
    """

    def __init__(self, url: str, process: str) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        resource = Resource(
            {
                "service.name": f"lightstream-{process}",
                "service.version": installed_version(),
                "process.pid": os.getpid(),
                OWN_RESOURCE: True,
            }
        )
        # Not the global one: an agent's own spans in the same process are its own.
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=url)))
        self._tracer = self._provider.get_tracer("lightstream")

    @classmethod
    def of(cls, settings: Settings, process: str) -> OwnSpans | None:
        """The collectors of the settings; ``None`` where they name none.

        Raises:
            SettingsError: the address is that of our own gateway.
        """
        url = settings.own_traces_url
        if url is None:
            return None
        gateway = find(settings, "gateway")
        addresses = [settings.gateway_url, None if gateway is None else gateway.address]
        if urlsplit(url).netloc in {urlsplit(address).netloc for address in addresses if address is not None}:
            raise SettingsError(
                f"LIGHTSTREAM_OWN_TRACES_URL is {url}, which is Lightstream's own gateway.",
                next_step="Name another collector: spans of Lightstream's own work are no traces of agents.",
            )
        return cls(url, process)

    def record(self, name: str, began_unix_nano: int, attributes: Mapping[str, str | int | float | bool]) -> None:
        """A span from then until now, with no parent."""
        from opentelemetry.context import Context

        span = self._tracer.start_span(name, Context(), attributes=dict(attributes), start_time=began_unix_nano)
        span.end(time.time_ns())

    def close(self) -> None:
        """Export the waiting spans, or give up after the exporter's own time-out."""
        self._provider.shutdown()
