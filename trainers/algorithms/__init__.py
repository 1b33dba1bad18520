"""Algorithms, and what runs them: a Trainer, a recording, a loop of one's own."""
