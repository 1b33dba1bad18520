"""Adapters of contributors."""
