"""A debate of two agents, each of a policy of its own, on one model: ``python -m examples.two_adapters``."""
