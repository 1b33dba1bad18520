"""Search, read, answer: ``python -m examples.rag``."""

from __future__ import annotations

from examples.program import program

from .run import run_rag

if __name__ == "__main__":
    program("rag", run_rag, steps=90)
