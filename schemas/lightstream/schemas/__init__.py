"""Schemas that every part shares: records, topics, codec, types, errors and interfaces."""
