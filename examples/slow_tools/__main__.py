"""Training ahead of slow tools: ``python -m examples.slow_tools``."""

from __future__ import annotations

from examples.program import program

from .run import run_slow_tools

if __name__ == "__main__":
    program("slow_tools", run_slow_tools, steps=80)
