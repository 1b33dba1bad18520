"""Imitation first, rewards after it: ``python -m examples.sft_then_grpo``."""

from __future__ import annotations

from examples.program import program

from .run import run_sft_then_grpo

if __name__ == "__main__":
    program("sft_then_grpo", run_sft_then_grpo, steps=40)
