"""The command line: ``lightstream`` or ``python -m lightstream.cli``."""

from .app import app, main

__all__ = ["app", "main"]
