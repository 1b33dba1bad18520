"""Imitation first, rewards after it: ``python -m examples.sft_then_grpo``."""
