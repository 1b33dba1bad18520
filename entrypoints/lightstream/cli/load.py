"""Imports of what the plain install may lack."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from lightstream.schemas.errors import LightstreamError

__all__ = ["needs"]


@contextmanager
def needs(extra: str) -> Generator[None]:
    """Import, in its block, what needs more than the plain install.

    Args:
        extra: of this distribution; it brings what the block imports.

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
            next_step=f'Install it with `pip install "lightstream[{extra}]"`.',
        ) from error
