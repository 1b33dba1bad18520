"""``agentlightning.contrib``: what its users contributed."""
