"""Servers of the policy: a small one for processors, vLLM, and what a training sees of them."""
