"""Trajectories out of the view, as they went in."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lightstream.schemas.errors import QueryError, SettingsError
from lightstream.schemas.packing import pack_int32
from lightstream.schemas.records import SpanEventRecord, SpanRecord, Trajectory
from lightstream.store_views.exports import (
    Answer,
    Told,
    arrow_batches,
    arrow_rows,
    chat_lines,
    conversations_of,
    read_trajectories,
    rows_of,
    to_atif,
    write_arrow,
    write_json_lines,
    write_parquet,
)
from lightstream.store_views.exports.arrow_rows import RowLevel
from lightstream.store_views.server.answer import json_answer
from lightstream.store_views.server.statement import QueryLimits, run_query
from lightstream.stream_processors.core.messages import Conversation
from lightstream.stream_processors.core.segments import segments_of
from tests.store_views.log_file import LogFile
from tests.stream_processors.assembly.build import assemble, closed, framework_span, opened, proxy_span, reward_span


def asks(log: LogFile, limits: QueryLimits | None = None) -> Callable[..., Answer]:
    """Questions as the view's server answers them."""

    def ask(sql: str, parameters: dict[str, Any] | None = None) -> Answer:
        outcome = run_query(log.database.cursor(), sql, limits or QueryLimits(), parameters)
        text = json_answer(outcome.columns, outcome.types, outcome.table, truncated=outcome.truncated)
        answer: Answer = json.loads(text)
        return answer

    return ask


def write_attempts(log: LogFile, count: int, calls: int = 3) -> list[Trajectory]:
    """Attempts whose calls continue each other but for the last, each a rollout of its own; a step a call."""
    written: list[Trajectory] = []
    for number in range(count):
        rollout_id = f"r{number}"
        spans: list[SpanRecord] = []
        history = [1]
        for call in range(1, calls + 1):
            if call == calls:
                history = [99]
            spans.append(proxy_span(call, history, [call, number], rollout_id=rollout_id, response_logprobs=None))
            history = [*history, call, number, 7]
        spans.append(reward_span(calls + 1, {"x": number / 4, "y": 1.0}, rollout_id=rollout_id))
        spans.append(proxy_span(calls + 2, [1], [], rollout_id=rollout_id))
        written += log.write_and_assemble(opened(rollout_id), *spans, closed(rollout_id))
    return written


def test_trajectories_come_out_as_they_were_written(log: LogFile) -> None:
    written = write_attempts(log, 7)
    assert list(read_trajectories(asks(log))) == written
    assert list(read_trajectories(asks(log), "rollout_id = 'r3'")) == [written[3]]
    assert list(read_trajectories(asks(log), "FALSE")) == []


def test_images_come_out_of_the_requests(log: LogFile) -> None:
    def asked(*images: bytes) -> str:
        urls = [f"data:image/png;base64,{b64encode(image).decode('ascii')}" for image in images]
        parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
        return json.dumps({"messages": [{"role": "user", "content": parts}]})

    (written,) = log.write_and_assemble(
        opened(),
        proxy_span(1, [1, 2], request_json=asked(b"one", b"two")),
        proxy_span(2, [3], request_json=asked()),
        proxy_span(3, [4, 5], request_json=asked(b"three", b"one")),
        closed(),
    )
    assert written.images == [b"one", b"two", b"three"]
    assert list(read_trajectories(asks(log))) == [written]


def test_only_the_latest_revision_comes_out(log: LogFile) -> None:
    (first,) = write_attempts(log, 1)
    second = first.model_copy(update={"revision": 1, "reward": 0.5})
    log.write(second)
    assert list(read_trajectories(asks(log))) == [second]


@pytest.mark.parametrize("limits", [QueryLimits(rows_max=2), QueryLimits(bytes_max=3000)])
def test_answers_that_are_cut_off_lose_nothing(log: LogFile, limits: QueryLimits) -> None:
    written = write_attempts(log, 9)
    assert list(read_trajectories(asks(log, limits))) == written


def test_pages_hold_every_row_once(log: LogFile) -> None:
    write_attempts(log, 5)
    key = ["log_partition", "log_offset", "item_index"]
    for page_rows in (1, 4, 100):
        rows = list(rows_of(asks(log), "SELECT * FROM triplets_raw", key, page_rows=page_rows))
        assert [(row["log_offset"], row["item_index"]) for row in rows] == [(t, i) for t in range(5) for i in range(3)]


def test_a_row_over_the_limit_is_an_error(log: LogFile) -> None:
    log.write_and_assemble(opened(), proxy_span(1, range(5000)), closed())
    with pytest.raises(QueryError, match="over the view's limit"):
        list(read_trajectories(asks(log, QueryLimits(bytes_max=2000))))


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_files_hold_a_row_for_each_call(log: LogFile, tmp_path: Path, kind: str) -> None:
    written = write_attempts(log, 4)
    path = tmp_path / "new" / f"calls.{kind}"
    write = write_parquet if kind == "parquet" else write_arrow
    assert write(read_trajectories(asks(log)), path) == 12
    table = pq.read_table(path) if kind == "parquet" else pa.ipc.open_file(str(path)).read_all()
    rows = table.to_pylist()
    triplets = [(trajectory, triplet) for trajectory in written for triplet in trajectory.triplets]
    for row, (trajectory, triplet) in zip(rows, triplets, strict=True):
        assert pack_int32(row["prompt_token_ids"]) == triplet.prompt_token_ids
        assert pack_int32(row["response_token_ids"]) == triplet.response_token_ids
        assert bytes(row["response_mask"]) == triplet.response_mask
        assert row["response_logprobs"] is None
        assert (row["rollout_id"], row["reward"], row["credit"]) == (trajectory.rollout_id, triplet.reward, "identical")
    assert [name.name for name in path.parent.iterdir()] == [path.name]


def test_segments_are_rows_of_aligned_arrays(log: LogFile, tmp_path: Path) -> None:
    (trajectory,) = write_attempts(log, 1)
    path = tmp_path / "segments.parquet"
    assert write_parquet(read_trajectories(asks(log)), path, "segment") == 2
    rows = pq.read_table(path).to_pylist()
    for row, segment in zip(rows, segments_of(trajectory), strict=True):
        assert pack_int32(row["token_ids"]) == segment.token_ids
        assert bytes(row["loss_mask"]) == segment.loss_mask
        assert np.asarray(row["rewards"], "<f4").tobytes() == segment.rewards
        assert np.isnan(row["logprobs"]).tolist() == np.isnan(np.frombuffer(segment.logprobs, "<f4")).tolist()
        assert row["start_reason"] == segment.start_reason.value
        assert row["call_indexes"] == [turn.call_index for turn in segment.turns]
    assert write_parquet(read_trajectories(asks(log)), path, "segment", 3) == 3


@pytest.mark.parametrize("level", ["call", "segment"])
def test_batches_are_bounded_in_tasks_too(log: LogFile, monkeypatch: pytest.MonkeyPatch, level: RowLevel) -> None:
    monkeypatch.setattr(arrow_rows, "BATCH_BYTES_MAX", 10_000)
    task = json.dumps("x" * 2_000)
    written = [t.model_copy(update={"input_json": task}) for t in write_attempts(log, 4)]
    batches = list(arrow_batches(written, level))
    assert max(batch.nbytes for batch in batches) < 13_000
    table = pa.Table.from_batches(batches)
    assert table.column("input_json").unique().to_pylist() == [task]
    assert table.schema.field("input_json").type == pa.string()


def test_batches_are_bounded_and_levels_known(log: LogFile) -> None:
    (trajectory,) = log.write_and_assemble(opened(), *(proxy_span(n) for n in range(1, 5001)), closed())
    batches = list(arrow_batches([trajectory], "call"))
    assert [batch.num_rows for batch in batches] == [4096, 904]
    with pytest.raises(SettingsError, match="row level"):
        list(arrow_batches([], "token"))  # type: ignore[arg-type]  # wrong on purpose


def test_an_export_that_fails_leaves_what_was_there(log: LogFile, tmp_path: Path) -> None:
    path = tmp_path / "calls.parquet"
    path.write_text("before")
    with pytest.raises(QueryError):
        write_parquet(read_trajectories(asks(log), "no_such_column"), path)
    assert path.read_text() == "before"
    assert list(tmp_path.glob(".*tmp")) == []


CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "sky"}'}}
TOOL = {"type": "function", "function": {"name": "look", "description": "", "parameters": {}}}
ASKED = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Weather?"}]
FIRST = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "content": "blue", "tool_call_id": "c1"}
SECOND = {"role": "assistant", "content": "Fine."}


def talk(log: LogFile) -> Trajectory:
    """Two calls with a tool between them; of the second, only the framework's span has the messages."""
    request = {"messages": ASKED, "tools": [TOOL]}
    first = proxy_span(1, [1], [2], request_json=json.dumps(request), response_json=json.dumps(FIRST))
    second = proxy_span(2, [1, 2, 3], [4], response_id="x")
    messages: dict[str, Any] = {"gen_ai.operation.name": "chat", "gen_ai.response.id": "x"}
    for index, message in enumerate([*ASKED, FIRST, RESULT]):
        messages |= flat(f"gen_ai.prompt.{index}", message)
    told = framework_span(3, messages | flat("gen_ai.completion.0", SECOND))
    (trajectory,) = log.write_and_assemble(opened(), first, second, told, reward_span(4, 1.0), closed())
    return trajectory


def flat(prefix: str, value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return {k: v for key, item in value.items() for k, v in flat(f"{prefix}.{key}", item).items()}
    if isinstance(value, list):
        return {k: v for index, item in enumerate(value) for k, v in flat(f"{prefix}.{index}", item).items()}
    return {prefix: value}


def test_chat_lines_hold_conversations_with_tools(log: LogFile, tmp_path: Path) -> None:
    trajectory = talk(log)
    ask = asks(log)
    whole = [*ASKED, FIRST, RESULT, SECOND]
    (line,) = chat_lines(ask, [trajectory])
    assert (line["messages"], line["reward"], line["call_index"]) == (whole, 1.0, 1)
    first, second = chat_lines(ask, [trajectory], level="call", reward_min=1.0)
    assert (first["messages"], first["tools"]) == ([*ASKED, FIRST], [TOOL])
    assert second["messages"] == whole
    assert list(chat_lines(ask, [trajectory], reward_min=1.5)) == []
    path = tmp_path / "chat.jsonl"
    assert write_json_lines(chat_lines(ask, [trajectory], level="call"), path) == 2
    assert [json.loads(text)["call_index"] for text in path.read_text().splitlines()] == [0, 1]


def two_answers(*, with_ids: bool) -> SpanRecord:
    """One span of a call with two choices, as OpenInference records it."""
    choices = [{"token_ids": [10, 11]}, {"token_ids": [20, 21]}] if with_ids else [{}, {}]
    body = {"id": "x", "choices": choices} | ({"prompt_token_ids": [1, 2, 3]} if with_ids else {})
    attributes = {"openinference.span.kind": "LLM", "output.value": json.dumps(body)}
    for index, content in enumerate(("wrong", "right")):
        attributes |= flat(f"llm.output_messages.{index}.message", {"role": "assistant", "content": content})
    return framework_span(1, attributes)


@pytest.mark.parametrize("with_ids", [True, False])
def test_each_choice_of_a_span_has_its_own_text(log: LogFile, with_ids: bool) -> None:
    (trajectory,) = log.write_and_assemble(opened(), two_answers(with_ids=with_ids), closed())
    lines = chat_lines(asks(log), [trajectory], level="call")
    assert [line["messages"][-1]["content"] for line in lines] == ["wrong", "right"]
    steps = to_atif(trajectory, conversations_of(asks(log), trajectory))["steps"]
    said = [(step["message"], step["metrics"]["completion_token_ids"]) for step in steps if "metrics" in step]
    assert said == ([("wrong", [10, 11]), ("right", [20, 21])] if with_ids else [])


def test_messages_are_read_of_events_too(log: LogFile) -> None:
    told = [("gen_ai.user.message", {"content": "Weather?"}), ("gen_ai.choice", {"message": json.dumps(SECOND)})]
    events = [SpanEventRecord(name=name, attributes=attributes) for name, attributes in told]
    span = framework_span(2, {"gen_ai.operation.name": "chat", "gen_ai.response.id": "resp-1"}, events=events)
    (trajectory,) = log.write_and_assemble(opened(), proxy_span(1), span, closed())
    (line,) = chat_lines(asks(log), [trajectory], level="call")
    assert line["messages"] == [ASKED[1], SECOND]


def test_a_completion_follows_its_own_prompt(log: LogFile) -> None:
    request = json.dumps({"prompt": ["Weather?", "Why?"]})
    answers = [{"role": "assistant", "content": text} for text in ("Fine.", "Because.")]
    spans = [
        proxy_span(n, response_id="x", choice_index=n, request_json=request, response_json=json.dumps(answer))
        for n, answer in enumerate(answers)
    ]
    (trajectory,) = log.write_and_assemble(opened(), *spans, closed())
    lines = chat_lines(asks(log), [trajectory], level="call")
    assert [[message["content"] for message in line["messages"]] for line in lines] == [
        ["Weather?", "Fine."],
        ["Why?", "Because."],
    ]


def test_atif_documents_keep_every_call_and_say_everything_once(log: LogFile) -> None:
    trajectory = talk(log)
    document = to_atif(trajectory, conversations_of(asks(log), trajectory))
    steps: Sequence[dict[str, Any]] = document["steps"]
    assert [step["step_id"] for step in steps] == [1, 2, 3, 4]
    assert [(step["source"], step["message"]) for step in steps] == [
        ("system", "Be brief."),
        ("user", "Weather?"),
        ("agent", ""),
        ("agent", "Fine."),
    ]
    assert steps[2]["tool_calls"] == [{"tool_call_id": "c1", "function_name": "look", "arguments": {"at": "sky"}}]
    assert steps[2]["observation"] == {"results": [{"source_call_id": "c1", "content": "blue"}]}
    assert steps[3]["metrics"] == {
        "prompt_tokens": 3,
        "completion_tokens": 1,
        "prompt_token_ids": [1, 2, 3],
        "completion_token_ids": [4],
        "logprobs": [-0.5],
    }
    assert steps[3]["extra"]["lightstream"]["reward"] == 1.0
    assert document["agent"]["tool_definitions"] == [TOOL]
    assert document["final_metrics"]["total_prompt_tokens"] == 4
    assert json.loads(json.dumps(document)) == document


DEEP = "[" * 5000


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (5, None),
        (["text", None], None),
        ([{"id": "c1", "function": "look"}], ("c1", "look", {"value": None})),
        ([{"function": {"name": "look", "arguments": DEEP}}], ("", "look", {"text": DEEP})),
        ([{"function": {"name": "look", "arguments": "no JSON"}}], ("", "look", {"text": "no JSON"})),
        ([{"function": {"name": "look", "arguments": "[1]"}}], ("", "look", {"value": [1]})),
        ([{"id": "c1", "name": "look", "arguments": {"at": "sky"}}], ("c1", "look", {"at": "sky"})),
    ],
)
def test_odd_tool_calls_are_exported_as_far_as_they_can_be(asked: Any, told: Any) -> None:
    trajectory = assemble(proxy_span(1))
    conversation = Conversation("test", [], [SECOND | {"tool_calls": asked}])
    (step,) = to_atif(trajectory, [Told(trajectory.triplets[0], conversation)])["steps"]
    assert step["message"] == SECOND["content"]
    calls = [(c["tool_call_id"], c["function_name"], c["arguments"]) for c in step.get("tool_calls", ())]
    assert calls == ([] if told is None else [told])


def test_atif_without_messages_still_has_the_tokens(log: LogFile) -> None:
    (trajectory,) = log.write_and_assemble(opened(), proxy_span(1, [1], [2, 3]), closed())
    (step,) = to_atif(trajectory, [])["steps"]
    assert (step["message"], step["metrics"]["completion_token_ids"]) == ("", [2, 3])
    (empty,) = log.write_and_assemble(opened("r2"), closed("r2"))
    assert len(to_atif(empty, [])["steps"]) == 1


def test_chat_lines_of_calls_without_token_ids(log: LogFile) -> None:
    request, answer = json.dumps({"messages": ASKED}), json.dumps(SECOND)
    untold: dict[str, Any] = {"prompt_token_ids": None, "response_token_ids": None, "response_logprobs": None}
    spans = [proxy_span(n, request_json=request, response_json=answer, **untold) for n in (1, 2)]
    (trajectory,) = log.write_and_assemble(opened(), *spans, reward_span(3, 0.5), closed())
    (line,) = chat_lines(asks(log), [trajectory])
    assert (line["messages"], line["reward"], line["call_index"]) == ([*ASKED, SECOND], 0.5, 1)
    assert len(list(chat_lines(asks(log), [trajectory], level="call"))) == 2
    assert list(chat_lines(asks(log), [trajectory], reward_min=0.6)) == []
