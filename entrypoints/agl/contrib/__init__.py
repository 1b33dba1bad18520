"""Contributions of its users."""
