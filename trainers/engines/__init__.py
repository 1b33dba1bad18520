"""Engines that compute updates: verl in this process, or in several that Ray starts."""
