"""The tree of an attempt's spans."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightstream.schemas.errors import LightstreamError
from lightstream.stream_processors.adapters import TracerTraceToTriplet, TraceTree
from lightstream.stream_processors.adapters._repair import Interval, closest_enclosing
from lightstream.stream_processors.adapters.tree import to_dot

from .build import agent, call, reward, span


def test_spans_become_a_tree_in_their_order() -> None:
    tree = TraceTree.from_spans([agent("root", "planner"), call("b", "root"), span("c", "b"), call("a", "root")])
    names: tuple[str, list[Any]] = (
        "agent [planner]",
        [("openai.chat.completion", [("step", [])]), ("openai.chat.completion", [])],
    )
    assert tree.names_tuple() == names
    assert [node.id for node in tree.traverse()] == ["root", "b", "c", "a"]
    found = tree.find_id("c")
    assert found is not None
    assert found.children == []
    assert tree.find_id("none") is None
    assert tree.to_json()["children"][1]["span"]["name"] == "openai.chat.completion"
    assert (tree.start_time, tree.end_time) == (0.0, 1.0)


def test_several_roots_get_one_that_is_made_up() -> None:
    tree = TraceTree.from_spans([span("a", at=3), span("b", at=5)])
    assert (tree.id, [child.id for child in tree.children]) == ("virtual-root", ["a", "b"])
    assert (tree.start_time, tree.end_time) == (3.0, 6.0)


def test_a_parent_that_is_missing_is_made_up() -> None:
    tree = TraceTree.from_spans([span("a", "lost", at=3), span("b", "lost", at=5)])
    assert (tree.id, [child.id for child in tree.children]) == ("lost", ["a", "b"])
    assert (tree.start_time, tree.end_time) == (3.0, 6.0)


def test_a_missing_time_is_tolerated_everywhere() -> None:
    spans = [
        span("a", "lost", start_time=None, end_time=None),
        call("b", "lost", at=2, start_time=None),
        reward("c", 1.0, "lost", at=3, end_time=None),
    ]
    assert [t.reward for t in TracerTraceToTriplet().adapt(spans)] == [1.0]


def test_no_spans_are_refused() -> None:
    with pytest.raises(ValueError, match="needs spans"):
        TraceTree.from_spans([])


def test_a_cycle_is_cut_and_no_span_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    tree = TraceTree.from_spans([call("a", "b", at=1), call("b", "c", at=2), call("c", "a", at=3), call("d", at=4)])
    assert sorted(node.id for node in tree.traverse()) == ["a", "b", "c", "d", "virtual-root"]
    assert "own parents" in caplog.text
    spans = [node.span for node in tree.traverse() if not node.made_up]
    assert len(TracerTraceToTriplet().adapt(spans)) == 4


def test_spans_of_traces_of_their_own_still_find_their_parents() -> None:
    spans = [span("root", trace_id="1" * 32), call("a", "root", trace_id="2" * 32)]
    assert TraceTree.from_spans(spans).names_tuple() == ("step", [("openai.chat.completion", [])])
    inner = call("b", "a", trace_id="3" * 32, response_id=None, attributes={"prompt_token_ids": [1]})
    assert len(TracerTraceToTriplet().adapt([*spans, inner])) == 1


@pytest.mark.parametrize("depth", [10_000])
def test_depth_does_not_matter(depth: int) -> None:
    spans = [
        agent("s0", "deep"),
        *(span(f"s{i}", f"s{i - 1}", at=i) for i in range(1, depth)),
        call("end", f"s{depth - 1}"),
    ]
    tree = TraceTree.from_spans(spans)
    tree.repair_hierarchy()
    assert len(tree.traverse()) == depth + 1
    assert tree.to_json()["id"] == "s0"
    assert tree.names_tuple()[0] == "agent [deep]"
    (triplet,) = tree.to_trajectory(agent_match="deep")
    assert triplet.metadata["agent_name"] == "deep"


def test_calls_that_float_beside_their_agent_are_moved_under_it() -> None:
    spans = [
        span("root", start_time=0.0, end_time=100.0),
        agent("outer", "outer", "root", start_time=1.0, end_time=50.0),
        agent("inner", "inner", "outer", start_time=10.0, end_time=20.0),
        call("first", "root", start_time=12.0, end_time=13.0),
        call("second", "root", start_time=30.0, end_time=31.0),
        call("third", "root", start_time=60.0, end_time=61.0),
    ]
    tree = TraceTree.from_spans(spans)
    assert [t.metadata["agent_name"] for t in tree.to_trajectory()] == ["*", "*", "*"]
    tree.repair_hierarchy()
    found = {t.metadata["response_id"]: t.metadata["agent_name"] for t in tree.to_trajectory()}
    assert found == {"resp-first": "inner", "resp-second": "outer", "resp-third": "*"}
    assert [child.id for child in tree.children] == ["outer", "third"]


def test_parallel_calls_without_response_ids_are_both_kept() -> None:
    spans = [
        span("root", start_time=0.0, end_time=100.0),
        call("long", "root", at=1, start_time=1.0, end_time=50.0, response_id=None),
        call("short", "root", at=2, start_time=10.0, end_time=20.0, response_id=None),
        span("other", "root", at=3, start_time=60.0, end_time=70.0),
    ]
    tree = TraceTree.from_spans(spans)
    tree.repair_hierarchy()
    assert len(tree.to_trajectory()) == 2


def test_repair_never_loses_a_span_when_children_outlive_their_parents() -> None:
    spans = [
        span("root", start_time=0.0, end_time=200.0),
        span("p", "root", start_time=10.0, end_time=20.0),
        span("p-child", "p", start_time=0.0, end_time=100.0),
        span("q", "root", start_time=30.0, end_time=40.0),
        span("q-child", "q", start_time=0.0, end_time=90.0),
    ]
    tree = TraceTree.from_spans(spans)
    tree.repair_hierarchy()
    assert sorted(node.id for node in tree.traverse()) == ["p", "p-child", "q", "q-child", "root"]


INTERVALS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12), st.integers(0, 3)), min_size=1, max_size=25)


@given(INTERVALS)
def test_the_closest_enclosing_interval_is_the_shortest_one(drawn: list[tuple[int, int, int]]) -> None:
    intervals = [Interval(start, start + length, group) for start, length, group in drawn]
    found = closest_enclosing(intervals, list(range(len(intervals))))
    for i, one in enumerate(intervals):
        around = [
            (other.end - other.start, j)
            for j, other in enumerate(intervals)
            if other.start <= one.start and other.end >= one.end and other[:2] != one[:2] and other.group != one.group
        ]
        assert found.get(i) == (min(around)[1] if around else None)


@given(st.integers(0, 10_000))
def test_repair_keeps_every_span(seed: int) -> None:
    draw = random.Random(seed)
    spans = [
        span(
            f"s{i}",
            f"s{draw.randrange(40)}" if draw.random() < 0.6 else None,
            start_time=float(draw.randrange(20)) if draw.random() < 0.95 else None,
            end_time=float(draw.randrange(10, 40)) if draw.random() < 0.95 else None,
        )
        for i in range(draw.randint(1, 30))
    ]
    tree = TraceTree.from_spans(spans)
    before = sorted(node.id for node in tree.traverse())
    tree.repair_hierarchy()
    assert sorted(node.id for node in tree.traverse()) == before


def test_visualize_draws_or_leaves_the_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # nothing is installed there
    spans = [agent("root", 'the "planner"'), call("a", "root"), span("b", "root")]
    with pytest.raises(LightstreamError, match="Graphviz is not installed"):
        TracerTraceToTriplet().visualize(spans, str(tmp_path / "tree"), interested_span_match="openai")
    drawn = (tmp_path / "tree.gv").read_text()
    assert '"root" -> "a"' in drawn
    assert "step" not in drawn
    assert '[the \\"planner\\"]' in drawn
    program = tmp_path / "dot"
    program.write_text('#!/bin/sh\nread first\necho "$first" > "$3"\n')
    program.chmod(0o755)
    tree = TracerTraceToTriplet().visualize(spans, str(tmp_path / "drawn"))
    assert (tmp_path / "drawn.png").read_text() == "digraph {\n"
    assert '"root" -> "b"' in to_dot(tree)


@pytest.mark.parametrize("time", [math.nan, math.inf, -math.inf, 1e300])
def test_times_that_are_none_move_no_span(time: float) -> None:
    spans = [span("a", at=0), span("b", start_time=time, end_time=2.0), span("c", start_time=0.25, end_time=time)]
    tree = TraceTree.from_spans(spans)
    tree.repair_hierarchy()
    assert sorted(node.id for node in tree.traverse() if node.id in "abc") == ["a", "b", "c"]
