"""A fresh model learns from rollouts that went well, as they were exported: ``python -m examples.export_for_sft``."""
