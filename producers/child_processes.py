"""Processes that an agent starts: how their spans find the attempt."""

from __future__ import annotations

import os
from urllib.parse import quote

from . import semconv

RESOURCE_ATTRIBUTES = "OTEL_RESOURCE_ATTRIBUTES"


def attempt_environment() -> dict[str, str]:
    """Environment variables by which a child process belongs to the running attempt.

    Every OpenTelemetry SDK, in any language, reads them into the resource of its spans, from which the exporter and the
    gateway read the attempt. What the variable says already is kept. Empty outside of an attempt.

    Example:
        ``subprocess.run(command, env={**os.environ, **attempt_environment()})``
    """
    from .tracer import attempt_here

    attempt = attempt_here()
    if attempt is None:
        return {}
    ours = {semconv.ROLLOUT_ID: attempt.rollout_id, semconv.ATTEMPT_ID: attempt.attempt_id}
    inherited = [pair for pair in os.environ.get(RESOURCE_ATTRIBUTES, "").split(",") if pair.partition("=")[0].strip()]
    others = [pair for pair in inherited if pair.partition("=")[0].strip() not in ours]
    return {
        RESOURCE_ATTRIBUTES: ",".join([*others, *(f"{name}={quote(value, safe='')}" for name, value in ours.items())])
    }
