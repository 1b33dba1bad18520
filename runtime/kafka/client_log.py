"""Passes librdkafka's log lines to Python's logging instead of standard error."""

from __future__ import annotations

import logging

logger = logging.getLogger(__name__)

PASSING = (
    "Connection refused",
    "Connection reset",
    "Connection setup timed out",
    "Broken pipe",
    "Disconnected",
    "Receive failed",
    "Send failed",
    "brokers are down",
    "Coordinator load in progress",
    "timed out",
    "Terminating instance",
    "unserved events",
)
"""Parts of lines about what passes by itself while a broker restarts or a client ends. Who waits for an answer is told
by an error of its own if it does not pass."""


class _ClientLog:
    """A logger for librdkafka's Python binding, which calls it with each line."""

    def log(self, level: int, template: str, *values: str) -> None:
        """One line: facility, client, text."""
        passes = any(part in value for value in values for part in PASSING)
        logger.log(logging.DEBUG if passes else level, template, *values)


CLIENT_LOG = _ClientLog()
"""Setting ``logger`` of a client."""
