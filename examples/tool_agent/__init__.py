"""An agent whose model calls a tool and reads its answer: ``python -m examples.tool_agent``."""
