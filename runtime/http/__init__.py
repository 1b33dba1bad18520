"""The HTTP edge of every server of ours: what may come in, how it is served, and how refusals look."""
