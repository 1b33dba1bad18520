"""Rollouts: asked for, collected in groups, and made into batches."""
