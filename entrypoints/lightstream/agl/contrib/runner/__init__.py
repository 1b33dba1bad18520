"""Runners of the contributions."""
