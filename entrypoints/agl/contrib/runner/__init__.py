"""``agentlightning.contrib.runner``: Runners that its users contributed."""
