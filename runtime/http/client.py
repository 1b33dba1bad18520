"""Shared parts of our HTTP clients: a blocking request whose failures are our errors, and the pauses between tries."""

from __future__ import annotations

import random
import ssl
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

from lightstream.schemas.errors import ServiceUnavailableError

from ..tls import certificate_problem

if TYPE_CHECKING:
    import httpx

PAUSE_S_MIN, PAUSE_S_MAX = 0.05, 1.0


def send(
    method: Literal["GET", "POST"],
    url: str,
    *,
    server: str,
    next_step: str,
    timeout_s: float,
    certificates: ssl.SSLContext,
    headers: Mapping[str, str] | None = None,
    content: bytes | None = None,
) -> httpx.Response:
    """Send one request and read the answer, whatever its status. Blocking; follows redirects.

    Args:
        server: its name in an error.
        next_step: what to do where it does not answer.
        timeout_s: for the connection, and between two pieces of the answer.

    Raises:
        ServiceUnavailableError: nobody answers, or the certificate is not to be trusted.
    """
    import httpx

    try:
        with httpx.Client(verify=certificates, timeout=timeout_s, follow_redirects=True) as client:
            return client.request(method, url, headers=headers, content=content)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        problem = certificate_problem(error, url)
        if problem is not None:
            raise ServiceUnavailableError(problem.message, next_step=problem.next_step) from error
        raise ServiceUnavailableError(f"{server} does not answer: {reason_of(error)}.", next_step=next_step) from error


def reason_of(error: Exception) -> str:
    """The text of an httpx error; of some, a timeout's say, that is empty, and the class is all there is."""
    return str(error) or type(error).__name__


class Retries:
    """When to send one request again: pauses double, with jitter, until the patience is over.

    Args:
        patience_s: how long to go on after the first failure.
        now: a monotonic clock.
    """

    def __init__(self, patience_s: float, now: Callable[[], float] = time.monotonic) -> None:
        self._patience_s = patience_s
        self._now = now
        self._first_failure_s: float | None = None
        self._next_s = PAUSE_S_MIN

    @property
    def spent_s(self) -> float:
        """Seconds since the first failure."""
        return 0.0 if self._first_failure_s is None else self._now() - self._first_failure_s

    def pause_s(self) -> float | None:
        """How long to wait after a failure; ``None`` once the patience is over."""
        if self._first_failure_s is None:
            self._first_failure_s = self._now()
        if self.spent_s >= self._patience_s:
            return None
        pause_s = self._next_s * random.uniform(0.5, 1.0)  # noqa: S311  # jitter, no secret
        self._next_s = min(2 * self._next_s, PAUSE_S_MAX)
        return pause_s
