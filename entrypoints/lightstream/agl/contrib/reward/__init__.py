"""Rewards of contributors."""
