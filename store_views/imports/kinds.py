"""Kinds of documents: forms that are imported, forms that are not, and the next step for these."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lightstream.schemas.errors import SettingsError

from .atif import is_atif
from .langfuse import is_langfuse
from .otlp import is_otlp
from .phoenix import is_phoenix

IS_OF_KIND: dict[str, Callable[[object], bool]] = {
    "otlp": is_otlp,
    "atif": is_atif,
    "phoenix": is_phoenix,
    "langfuse": is_langfuse,
}
FORMATS = ("auto", *IS_OF_KIND)

_KNOWN = (
    "Known are OTLP (`resourceSpans`, or its spans), ATIF (`schema_version`), Phoenix (`context` and `attributes`, or "
    "its data frame), Langfuse (a trace with `observations`, or rows of observations and scores): as JSON, JSON lines "
    "or Parquet, compressed by gzip or not."
)
_OF_CLAUDE = (
    "Let Claude Code call the model through the proxy (ANTHROPIC_BASE_URL, docs/proxy.md): it records each call."
)
_BY_OTLP = "send its spans to the gateway by OTLP, or have them written as OTLP JSON"


def kind_of(path: Path, document: object) -> str:
    """The form of a file, by its first document.

    Raises:
        SettingsError: it is none that is imported; names what it is, as far as that shows, and what to do.
    """
    found = next((name for name, is_one in IS_OF_KIND.items() if is_one(document)), None)
    if found is not None:
        return found
    if isinstance(document, dict):
        for is_one, what, next_step in _OTHERS:
            if is_one(document):
                raise SettingsError(f"{path} is not imported: it holds {what}.", next_step=next_step)
    raise SettingsError(f"{path} is in no known format: it begins with {_shown(document)}.", next_step=_KNOWN)


def _shown(document: object) -> str:
    if isinstance(document, dict):
        keys = ", ".join(str(key)[:40] for key in list(document)[:12])
        return f"an object with the keys {keys}" if keys else "an empty object"
    return f"{type(document).__name__} {document!r:.100}"


def _has(*names: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda document: all(name in document for name in names)


def _holds(name: str, kind: type, *within: str) -> Callable[[Mapping[str, Any]], bool]:
    """Whether there is a list (or an object) of that name, whose first item (or itself) has these keys."""

    def is_one(document: Mapping[str, Any]) -> bool:
        value = document.get(name)
        if not isinstance(value, kind):
            return False
        item = value[0] if isinstance(value, list) and value else value
        return isinstance(item, dict) and all(key in item for key in within)

    return is_one


_OTHERS: tuple[tuple[Callable[[Mapping[str, Any]], bool], str, str], ...] = (
    (
        _has("run_type", "dotted_order"),
        "runs of LangSmith",
        f"Set LANGSMITH_OTEL_ENABLED=true and {_BY_OTLP} (docs/otlp.md).",
    ),
    (
        _holds("data", dict, "spans"),
        "a trace of MLflow",
        f"Set OTEL_EXPORTER_OTLP_TRACES_ENDPOINT where MLflow traces, and {_BY_OTLP} (docs/otlp.md).",
    ),
    (
        _has("traceID", "spans"),
        "traces of Jaeger's own JSON",
        "Ask Jaeger for OTLP: its interface `/api/v3/traces/<trace id>` answers with `resourceSpans`.",
    ),
    (_has("traceId", "id", "localEndpoint"), "spans of Zipkin", f"Let the tracer {_BY_OTLP} (docs/otlp.md)."),
    (_has("op_name", "trace_id", "started_at"), "calls of W&B Weave", f"Let Weave {_BY_OTLP} (docs/otlp.md)."),
    (
        _holds("conversations", list, "from", "value"),
        "conversations in ShareGPT's form: text without spans, calls or rewards",
        (
            "To train on them: write each as `messages` (role, content), and give the file to `SFT` "
            "(docs/training.md). To import trajectories, write ATIF (docs/training-data.md)."
        ),
    ),
    (
        _holds("messages", list, "role"),
        "conversations in OpenAI's fine-tuning form: text without spans, calls or rewards",
        (
            "To train on them, give the file to `SFT` as it is (docs/training.md). To import trajectories, write ATIF "
            "(docs/training-data.md)."
        ),
    ),
    (
        _has("leafUuid"),
        "a session of Claude Code",
        _OF_CLAUDE,
    ),
    (
        _has("sessionId", "uuid", "parentUuid"),
        "a session of Claude Code",
        _OF_CLAUDE,
    ),
    (
        _has("timestamp", "type", "payload"),
        "a session of Codex",
        "Let Codex call the model through the proxy (its `base_url`, docs/proxy.md): then each call is recorded.",
    ),
    (
        _has("rollout_id", "attempt_id", "triplets"),
        "trajectories that `lightstream export recording` wrote",
        "Train on them as they are: `lightstream.trainers.train_recorded` (docs/training-data.md).",
    ),
    (
        _has("rollout_id", "attempt_id", "trajectory_reward"),
        "rows that `lightstream export parquet` wrote, which have no spans",
        "Export the trajectories as ATIF in its place: `lightstream export atif`.",
    ),
)
