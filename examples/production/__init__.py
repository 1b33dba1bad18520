"""Learning from production traffic: ``python -m examples.production``."""
