"""Algorithms, and their runners: a Trainer, a recording, a loop of one's own."""
