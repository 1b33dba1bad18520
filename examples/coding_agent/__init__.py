"""A coding agent over Anthropic's messages: ``python -m examples.coding_agent``."""
