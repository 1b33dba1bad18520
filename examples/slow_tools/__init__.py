"""Training ahead of slow tools: ``python -m examples.slow_tools``."""
