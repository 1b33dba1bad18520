"""Libraries that instrument themselves, switched on and off as OpenInference's instrumentors are."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.trace import TracerProvider


class PydanticAI:
    """Instruments Pydantic AI's agents, including existing ones."""

    is_instrumented_by_opentelemetry = False
    """Unknown, so false: instrumenting again changes where spans go, and makes none twice."""

    def instrument(self, *, tracer_provider: TracerProvider, **_: Any) -> None:
        """Every agent's runs, calls and tools become spans."""
        from pydantic_ai import Agent
        from pydantic_ai.models.instrumented import InstrumentationSettings

        Agent.instrument_all(InstrumentationSettings(tracer_provider=tracer_provider))

    def uninstrument(self) -> None:
        """Undo it."""
        from pydantic_ai import Agent

        Agent.instrument_all(False)
