"""The gateway: takes OTLP over HTTP and gRPC, and answers once Kafka has it. Imports nothing until it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightstream.runtime.lazy import lazy_names

if TYPE_CHECKING:
    from .http_app import Taking, create_app, traces_endpoint
    from .intake import decoder_of
    from .responses import Signal
    from .server import gateway, run

__all__ = ["Signal", "Taking", "create_app", "decoder_of", "gateway", "run", "traces_endpoint"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Signal": "responses",
        "Taking": "http_app",
        "create_app": "http_app",
        "decoder_of": "intake",
        "gateway": "server",
        "run": "server",
        "traces_endpoint": "http_app",
    },
)
