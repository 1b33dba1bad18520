"""Examples that run: each folder is a program (``python -m examples.<name>``)."""
