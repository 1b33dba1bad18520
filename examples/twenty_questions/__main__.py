"""Questions until the answer is known: ``python -m examples.twenty_questions``."""

from __future__ import annotations

from examples.program import program

from .run import run_twenty_questions

if __name__ == "__main__":
    program("twenty_questions", run_twenty_questions, steps=90)
