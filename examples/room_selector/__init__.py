"""A prompt that is found by search: ``python -m examples.room_selector``."""
