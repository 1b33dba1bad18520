"""The LLM proxy: forwards chat completions and records each call, with its token ids, before the agent is answered."""

from .app import create_app
from .server import llm_proxy, run, upstream_of

__all__ = ["create_app", "llm_proxy", "run", "upstream_of"]
