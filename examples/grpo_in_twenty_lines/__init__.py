"""An algorithm of one's own over a policy's primitives: ``python -m examples.grpo_in_twenty_lines``."""
