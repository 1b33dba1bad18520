"""The exporter that OpenTelemetry's SDK finds by name: ``OTEL_TRACES_EXPORTER=lightstream``."""

from __future__ import annotations

from ..exporter import KafkaSpanExporter


class LightstreamSpanExporter(KafkaSpanExporter):
    """A :class:`KafkaSpanExporter` configured by the environment alone, for ``opentelemetry-instrument``.

    Entry point ``lightstream`` of the group ``opentelemetry_traces_exporter``. The rollout and attempt of each span are
    those that its attributes name, the attempt that runs in this process, its trace state, or the resource
    (``OTEL_RESOURCE_ATTRIBUTES=lightstream.rollout_id=…,lightstream.attempt_id=…``); otherwise it is kept under its
    trace id. The SDK's batch processor hands spans over every 5 s (``OTEL_BSP_SCHEDULE_DELAY``) and at exit.

    Raises:
        SettingsError: a ``LIGHTSTREAM_*`` variable is wrong.
    """

    def __init__(self) -> None:
        super().__init__()
