"""Servers of the policy: a small one for processors, vLLM, and their states as a training sees them."""
