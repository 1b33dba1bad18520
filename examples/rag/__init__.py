"""Search, read, answer: ``python -m examples.rag``."""
