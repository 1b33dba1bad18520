"""Loads what the plain install may lack when a command needs it; says which extra brings it."""

from __future__ import annotations

import importlib
import logging
from typing import Any

from lightstream.schemas.errors import LightstreamError

__all__ = ["load", "log_to_stderr"]

EXTRAS = {
    "lightstream.stream_processors.worker": "processors",
    "lightstream.store_views.server": "view",
    "lightstream.store_views.server.json_values": "view",
    "lightstream.store_views.server.query": "view",
    "lightstream.store_views.attach_trace": "view",
    "lightstream.store_views.client": "view",
    "lightstream.store_views.exports": "view",
    "lightstream.store_views.exports.paging": "view",
    "lightstream.store_views.imports": "view",
    "lightstream.store_views.materialiser": "view",
    "lightstream.store_views.stores": "view",
    "lightstream.store_views.stores.http": "view",
    "duckdb": "view",
    "lightstream.producers.llm_proxy": "proxy",
    "lightstream.up.store_traces": "gateway",
    "lightstream.producers.otlp.gateway": "gateway",
    "lightstream.trainers.exports": "train",
    "lightstream.trainers.policy_server": "train",
    "lightstream.trainers.recorded": "train",
    "lightstream.trainers.tiny_model": "train",
    "torch": "train",
}
"""Module -> the extra that brings what it needs beyond the plain install. All others are imported as usual."""


def load(module: str, name: str) -> Any:
    """``name`` from ``module``, one of :data:`EXTRAS`.

    Raises:
        LightstreamError: a package that the module needs is not installed; says how to install it.
    """
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.split(".")[0] == "lightstream":
            raise
        raise LightstreamError(
            f"the package {error.name!r} is not installed.",
            next_step=f'Install it with `pip install "lightstream[{EXTRAS[module]}]"`.',
        ) from error


def log_to_stderr(level: int = logging.INFO) -> None:
    """One line per event, on standard error; a supervisor keeps it in the process's log file."""
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True)
