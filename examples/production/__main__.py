"""Traffic in, better versions out, through a gate, with a way back: ``python -m examples.production``."""

from __future__ import annotations

from examples.program import program

from .run import run_production

program("production", run_production, steps=24)
