"""Files of the field's tools: read, or refused with what they are and what to do."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lightstream.schemas.errors import SettingsError
from lightstream.store_views.imports import Spool, import_traces, read_files, read_traces
from lightstream.store_views.stores import InMemoryLightningStore

from .build import CALL, GENERATION, LANGFUSE, calls, otlp, saved

OTHERS: dict[str, tuple[Any, str]] = {
    "OpenAI's fine-tuning form": ({"messages": [{"role": "user", "content": "?"}]}, "SFT"),
    "ShareGPT": ({"conversations": [{"from": "human", "value": "?"}]}, "SFT"),
    "LangSmith": ({"id": "r", "trace_id": "t", "run_type": "llm", "dotted_order": "1"}, "LANGSMITH_OTEL_ENABLED"),
    "MLflow": ({"info": {}, "data": {"spans": []}}, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
    "Jaeger": ({"data": [{"traceID": "a", "spans": []}]}, "api/v3/traces"),
    "Zipkin": ([{"traceId": "a", "id": "b", "localEndpoint": {}}], "gateway"),
    "Weave": ({"op_name": "x", "trace_id": "t", "started_at": "2026"}, "gateway"),
    "Claude Code": ({"type": "user", "uuid": "u", "parentUuid": None, "sessionId": "s"}, "ANTHROPIC_BASE_URL"),
    "Codex": ({"timestamp": "2026", "type": "session_meta", "payload": {}}, "base_url"),
    "lightstream export recording": ({"rollout_id": "r", "attempt_id": "a", "triplets": []}, "train_recorded"),
}


@pytest.mark.parametrize("what", OTHERS)
def test_what_is_not_imported_is_named_with_what_to_do(tmp_path: Path, what: str) -> None:
    document, next_step = OTHERS[what]
    with pytest.raises(SettingsError, match="is not imported: it holds") as refused:
        read_traces(saved(tmp_path / "file.json", document))
    assert what in refused.value.message
    assert next_step in refused.value.next_step


def test_what_is_unknown_is_told_with_what_was_seen_and_what_is_known(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"no known format: it begins with an object with the keys a, b") as refused:
        read_traces(saved(tmp_path / "file.json", {"a": 1, "b": 2}))
    assert all(name in refused.value.next_step for name in ("OTLP", "ATIF", "Phoenix", "Langfuse", "Parquet"))
    with pytest.raises(SettingsError, match="it is empty"):
        read_traces(saved(tmp_path / "file.json", []))


def test_a_data_frame_of_phoenix_as_parquet(tmp_path: Path) -> None:
    answer = json.dumps({"prompt_token_ids": [1, 2], "choices": [{"token_ids": [3]}]})
    row = {
        "name": "ChatCompletion",
        "span_kind": "LLM",
        "parent_id": None,
        "start_time": datetime(2026, 1, 1, tzinfo=UTC),
        "end_time": datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC),
        "status_code": "OK",
        "context.trace_id": "e" * 32,
        "context.span_id": "f" * 16,
        "attributes.llm.input_messages": [{"message.role": "user", "message.content": "Hi"}],
        "attributes.output.value": answer,
    }
    path = tmp_path / "spans.parquet"
    pq.write_table(pa.Table.from_pylist([row]), path)
    (trace,) = read_traces(path)
    (call,) = calls(trace)
    assert (call.prompt["token_ids"], call.prompt["raw_content"]) == ([1, 2], [{"role": "user", "content": "Hi"}])
    assert (trace.spans[0].start_time, trace.spans[0].end_time) == (1_767_225_600.0, 1_767_225_601.0)


OBSERVATION = {"id": "o-1", "trace_id": "t-1", "type": "GENERATION", "start_time": "2026-01-01 00:00:00"}
SCORES: list[dict[str, Any]] = [
    {"id": "s1", "trace_id": "t-1", "observation_id": None, "name": "right", "value": 1, "data_type": "NUMERIC"},
    {"id": "s2", "trace_id": "t-1", "observation_id": "o-1", "name": "right", "value": "0.5", "data_type": "NUMERIC"},
    {"id": "s3", "trace_id": "t-1", "name": "tone", "value": None, "string_value": "calm"},
    {"id": "s4", "trace_id": "t-9", "name": "right", "value": 1},
]


@pytest.mark.parametrize("first", ["observations", "scores"])
def test_rows_of_langfuses_scores_find_their_traces_in_other_files(tmp_path: Path, first: str) -> None:
    files = {
        "observations": saved(tmp_path / "observations.jsonl", OBSERVATION, lines=True),
        "scores": saved(tmp_path / "scores.jsonl", *SCORES, lines=True),
    }
    with Spool() as spool:
        read_files(spool, [files[first], *(file for name, file in files.items() if name != first)])
        assert (len(spool), spool.score_names(), spool.orphan_scores()) == (1, ["right"], 1)
        (trace,) = spool.traces(None)
    # The only root's score is the whole trace's, where that has none itself.
    assert [s.attributes["agentlightning.reward.0.value"] for s in trace.spans if s.name.startswith("agent")] == [1.0]


def test_what_langfuse_counted_of_tokens_is_kept(tmp_path: Path) -> None:
    document = LANGFUSE | {"observations": [GENERATION | {"usageDetails": {"input": 5, "output": 3}}]}
    (trace,) = read_traces(saved(tmp_path / "a.json", document))
    assert json.loads(trace.spans[0].attributes["langfuse.observation.usage_details"]) == {"input": 5, "output": 3}


def test_what_a_tracer_left_out_is_kept(tmp_path: Path) -> None:
    event = {"name": "said", "timeUnixNano": "1", "attributes": [], "droppedAttributesCount": 1}
    span = CALL | {"droppedAttributesCount": 16, "droppedEventsCount": "2", "events": [event]}
    (trace,) = read_traces(saved(tmp_path / "a.json", otlp("1" * 32, span)))
    (found,) = trace.spans
    assert found.attributes["otel.dropped_attributes_count"] == 16
    assert found.attributes["otel.dropped_events_count"] == 2
    assert found.events[0].attributes == {"otel.dropped_attributes_count": 1}


async def test_traces_are_imported_as_they_are_read_and_progress_is_told(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.jsonl", *(otlp(f"{number:032x}", CALL) for number in range(100)), lines=True)
    read: list[int] = []
    done: list[int] = []
    store = InMemoryLightningStore()
    try:
        with Spool() as spool:
            read_files(spool, [path], progress=lambda _, size: read.append(size))
            report = await import_traces(store, spool.traces(None), "run", done.append)
    finally:
        await store.close()
    assert (report.rollouts, report.spans) == (100, 100)
    assert read[-1] == path.stat().st_size
    assert done == list(range(1, 101))
