"""Runners."""

from __future__ import annotations

from lightstream.producers import Runner

__all__ = ["Runner"]
