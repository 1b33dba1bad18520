"""What went well, exported and learned by a fresh model: ``python -m examples.export_for_sft``."""
