"""The policy server as a process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from lightstream.runtime.health import Check
from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.kafka import KafkaContact, bootstrap_servers
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import LightstreamError

from ..version_watcher import VersionWatcher
from .app import create_app
from .checkpoint import preload
from .policy_version import NEWEST, Versions


def run(settings: Settings, *, checkpoint: Path | None = None, run_id: str = "") -> None:
    """Serve the policy until SIGTERM or Ctrl-C; announced as ``policy``.

    Args:
        settings: address, device, limits, cluster.
        checkpoint: weights to serve as ``policy@0`` until a trainer publishes some.
        run_id: follow the versions of this run only; empty follows all.

    Raises:
        ServiceUnavailableError: the port is taken, or no Kafka is named or running; or the topic ``resources`` is
            missing, was deleted meanwhile, or is not for this user.
        TrainingError: ``checkpoint`` cannot be loaded.
    """
    from transformers.utils import logging as transformers_logging

    quiet: Any = transformers_logging  # has no types
    quiet.disable_progress_bar()
    failures: list[LightstreamError] = []

    def stop(failure: LightstreamError) -> None:
        failures.append(failure)
        server.stop()

    server = policy_server(settings, checkpoint=checkpoint, run_id=run_id, on_failure=stop)
    threading.Thread(target=preload, name="lightstream-preload", daemon=True).start()
    server.run()
    if failures:
        raise failures[0]


def policy_server(
    settings: Settings,
    *,
    checkpoint: Path | None = None,
    run_id: str = "",
    follows_resources: bool = True,
    on_failure: Callable[[LightstreamError], None] | None = None,
) -> HttpServer:
    """As :func:`run`, but returns the server before it starts; without Kafka if ``follows_resources`` is false."""
    versions = Versions(
        _device(settings),
        getattr(torch, settings.policy_dtype),
        settings.policy_versions_kept,
        rank_max=settings.policy_lora_rank_max,
        is_succeeded=settings.policy_swap != "drain",
    )
    if checkpoint is not None:
        versions.announce(f"{NEWEST}@0", 0, str(checkpoint))
        versions.release(versions.load(f"{NEWEST}@0"))
    ready: list[Check] = []
    if follows_resources:
        bootstrap_servers(settings)  # says now, rather than in a thread, that there is no Kafka
        watcher = VersionWatcher(settings, versions, run_id=run_id, on_failure=on_failure)
        ready = [KafkaContact(settings), watcher.unready]
        app = create_app(settings, versions, start=watcher.start, stop=watcher.stop)
    else:
        app = create_app(settings, versions)
    return HttpServer(
        app,
        settings,
        name="policy",
        port=settings.policy_port,
        setting="LIGHTSTREAM_POLICY_PORT",
        ready=ready,
    )


def _device(settings: Settings) -> torch.device:
    if settings.policy_device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(settings.policy_device)
