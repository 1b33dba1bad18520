"""The LLM proxy: forwards agents' calls and records each, with its token ids, before the agent is answered."""

from .app import create_app
from .model_list import ModelConfig
from .server import LLMProxy, llm_proxy, proxy_server, run, upstream_of

__all__ = ["LLMProxy", "ModelConfig", "create_app", "llm_proxy", "proxy_server", "run", "upstream_of"]
