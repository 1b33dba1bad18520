"""Models on disk: a tiny one, their chat templates, and how their attention is computed."""
