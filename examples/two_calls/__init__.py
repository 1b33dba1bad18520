"""An agent with two LLM calls and a tool between them in one rollout: ``python -m examples.two_calls``."""
