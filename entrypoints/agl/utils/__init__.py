"""``agentlightning.utils``: helpers."""
