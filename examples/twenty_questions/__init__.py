"""Questions until the answer is known: ``python -m examples.twenty_questions``."""
