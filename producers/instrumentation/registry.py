"""The instrumentor of each library. None is ours: they are OpenInference's, or the library's own."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Instrumentor:
    """One of them, not yet imported.

    Attributes:
        name: how :func:`instrument` calls it.
        library: the module that it patches; only where this is installed there is something to see.
        module, class_name: where it is.
        package: what brings it.
    """

    name: str
    library: str
    module: str
    class_name: str
    package: str


def _openinference(name: str, library: str, class_name: str, part: str | None = None) -> Instrumentor:
    part = part or name
    module = f"openinference.instrumentation.{part.replace('-', '_')}"
    return Instrumentor(name, library, module, class_name, f"openinference-instrumentation-{part}")


INSTRUMENTORS: dict[str, Instrumentor] = {
    each.name: each
    for each in (
        _openinference("agno", "agno", "AgnoInstrumentor"),
        _openinference("anthropic", "anthropic", "AnthropicInstrumentor"),
        _openinference("autogen", "autogen_agentchat", "AutogenAgentChatInstrumentor", "autogen-agentchat"),
        _openinference("crewai", "crewai", "CrewAIInstrumentor"),
        _openinference("dspy", "dspy", "DSPyInstrumentor"),
        _openinference("google-adk", "google.adk", "GoogleADKInstrumentor"),
        _openinference("haystack", "haystack", "HaystackInstrumentor"),
        _openinference("instructor", "instructor", "InstructorInstrumentor"),
        _openinference("langchain", "langchain_core", "LangChainInstrumentor"),  # and with it LangGraph
        _openinference("litellm", "litellm", "LiteLLMInstrumentor"),
        _openinference("llama-index", "llama_index.core", "LlamaIndexInstrumentor"),
        _openinference("mcp", "mcp", "MCPInstrumentor"),
        _openinference("openai", "openai", "OpenAIInstrumentor"),
        _openinference("openai-agents", "agents", "OpenAIAgentsInstrumentor"),
        Instrumentor(
            "pydantic-ai", "pydantic_ai", "lightstream.producers.instrumentation.own", "PydanticAI", "pydantic-ai-slim"
        ),
        _openinference("smolagents", "smolagents", "SmolagentsInstrumentor"),
    )
}
"""By name."""
