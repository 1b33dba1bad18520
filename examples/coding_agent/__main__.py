"""A coding agent over Anthropic's messages: ``python -m examples.coding_agent``."""

from __future__ import annotations

from examples.program import program

from .run import run_coding_agent

if __name__ == "__main__":
    program("coding_agent", run_coding_agent, steps=80)
