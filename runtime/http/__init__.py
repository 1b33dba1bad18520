"""The HTTP edge of every server of ours: allowed requests, how they are served, and how refusals look."""
