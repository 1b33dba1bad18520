"""A debate of two agents, each of a policy of its own, on one model: ``python -m examples.two_adapters``."""

from __future__ import annotations

from examples.program import program

from .run import run_two_adapters

if __name__ == "__main__":
    program("two_adapters", run_two_adapters, steps=40)
