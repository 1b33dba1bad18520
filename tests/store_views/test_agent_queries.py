"""The named queries that explain an agent: its conversation, tools, errors, and what changed at a step."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from typing import Any

import pytest

from lightstream.schemas.records import ConsumedTrajectory, RolloutMode, SpanStatus, StepOutcome
from tests.store_views.log_file import LogFile
from tests.store_views.test_accounting import state
from tests.store_views.test_queries import ask
from tests.store_views.test_why_not_trained import training_step
from tests.stream_processors.assembly.build import closed, framework_span, opened, proxy_span, reward_span, span_id

USER = {"role": "user", "content": "What?"}
USED = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "t", "function": {"name": "add", "arguments": "{}"}}],
}
RESULT = {"role": "tool", "tool_call_id": "t", "content": "2"}
ANSWER = {"role": "assistant", "content": "Two."}
TOOL = {"openinference.span.kind": "TOOL", "tool.name": "add"}


def call(
    number: int, messages: list[Any], answer: Any, *, attempt: int = 1, parent: int | None = None, **more: Any
) -> Any:
    texts: dict[str, Any] = {
        "request_json": json.dumps({"model": "m", "messages": messages} | more),
        "response_json": json.dumps(answer),
    }
    return proxy_span(number, rollout_id="c", attempt=attempt, parent=parent, **texts)


@pytest.fixture
def talk(log: LogFile) -> LogFile:
    """A rollout ``c`` of three calls: the second goes on with the first, the third with other messages."""
    log.write(state("c", run_id="r"))
    log.write_and_assemble(
        opened("c", run_id="r"),
        call(1, [USER], USED, tools=[{"type": "function"}]),
        call(2, [USER, USED, RESULT], ANSWER),
        call(3, [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}], ANSWER),
        reward_span(9, 1.0, rollout_id="c"),
        closed("c"),
    )
    return log


def test_a_conversation_has_each_message_once(talk: LogFile) -> None:
    rows = ask(talk, "conversation", rollout="c")
    assert [(row["role"], row["text"], row["continues"]) for row in rows] == [
        ("user", "What?", True),
        ("answer", "", True),
        ("assistant", "", True),
        ("tool", "2", True),
        ("answer", "Two.", True),
        ("user", "a\nb", False),
        ("answer", "Two.", False),
    ]
    assert json.loads(rows[1]["tool_calls"]) == USED["tool_calls"]
    assert rows[3]["tool_call_id"] == "t"
    assert [(row["call_index"], row["sampled"], row["response_tokens"]) for row in rows if row["role"] == "answer"] == [
        (0, 2, 2),
        (1, 2, 2),
        (2, 2, 2),
    ]


def test_agents_that_take_turns_each_go_on_with_their_own_messages(log: LogFile) -> None:
    other = {"role": "user", "content": "Write."}
    log.write(state("c", run_id="r"))
    log.write_and_assemble(
        opened("c", run_id="r"),
        framework_span(91, {"gen_ai.agent.name": "plan"}, rollout_id="c"),
        framework_span(92, {"gen_ai.agent.name": "write"}, rollout_id="c"),
        call(1, [USER], USED, parent=91),
        call(2, [USER], ANSWER, parent=92),
        call(3, [USER, USED, RESULT], ANSWER, parent=91),
        call(4, [other], ANSWER, parent=92),
        call(5, [USER, ANSWER, other], ANSWER, parent=92),
        closed("c"),
    )
    rows = ask(log, "conversation", rollout="c")
    assert [(row["agent_name"], row["role"], row["text"]) for row in rows] == [
        ("plan", "user", "What?"),
        ("plan", "answer", ""),
        ("write", "user", "What?"),
        ("write", "answer", "Two."),
        ("plan", "assistant", ""),
        ("plan", "tool", "2"),
        ("plan", "answer", "Two."),
        ("write", "user", "Write."),
        ("write", "answer", "Two."),
        ("write", "assistant", "Two."),
        ("write", "user", "Write."),
        ("write", "answer", "Two."),
    ]
    continued = {row["span_id"]: (row["continues"], row["continued_span_id"]) for row in rows}
    one, two, three, four, five = map(span_id, range(1, 6))
    assert continued == {
        one: (True, None),
        two: (True, None),
        three: (True, one),
        four: (False, None),
        five: (True, two),
    }


def test_calls_without_an_agents_name_go_on_with_the_longest_that_they_begin_with(log: LogFile) -> None:
    more = [USER, ANSWER, {"role": "user", "content": "And?"}]
    log.write(state("c", run_id="r"))
    log.write_and_assemble(
        opened("c", run_id="r"),
        call(1, [USER], ANSWER),
        call(2, more, ANSWER),
        call(3, [USER], ANSWER, instructions="Be brief."),
        call(4, [*more, ANSWER], ANSWER),
        call(5, more[:2], ANSWER),
        call(6, more, ANSWER),
        closed("c"),
    )
    rows = ask(log, "conversation", rollout="c")
    one, two = span_id(1), span_id(2)
    assert {row["span_id"]: row["continued_span_id"] for row in rows} == {
        one: None,
        two: one,
        span_id(3): None,
        span_id(4): two,
        span_id(5): one,
        span_id(6): two,
    }
    assert [row["role"] for row in rows if row["span_id"] == span_id(6)] == ["answer"], "the same messages again"


def test_the_attempts_of_a_rollout_come_one_after_the_other(log: LogFile) -> None:
    log.write(state("c", run_id="r"))
    log.write_and_assemble(
        opened("c", run_id="r"),
        call(1, [USER], USED),
        opened("c", attempt=2, run_id="r"),
        call(2, [USER], ANSWER, attempt=2),
        call(3, [USER, USED, RESULT], ANSWER),  # the first was silent, and not over
        closed("c", final=False),
        closed("c", attempt=2),
    )
    rows = ask(log, "conversation", rollout="c")
    assert [(row["attempt_id"], row["role"], row["continued_span_id"]) for row in rows] == [
        ("c-a1", "user", None),
        ("c-a1", "answer", None),
        ("c-a1", "assistant", span_id(1)),
        ("c-a1", "tool", span_id(1)),
        ("c-a1", "answer", span_id(1)),
        ("c-a2", "user", None),
        ("c-a2", "answer", None),
    ]


def test_a_conversation_says_how_much_of_it_is_left_out(log: LogFile) -> None:
    log.write(state("c", run_id="r"))
    many = [{"role": "user", "content": str(number)} for number in range(5_010)]
    log.write_and_assemble(opened("c", run_id="r"), call(1, many, ANSWER), closed("c"))
    rows = ask(log, "conversation", rollout="c")
    assert [row["text"] for row in rows] == [str(number) for number in range(5_000)]
    assert {row["left_out"] for row in rows} == {11}


def test_of_one_call_all_of_its_messages_are_given(talk: LogFile) -> None:
    spans = list(dict.fromkeys(row["span_id"] for row in ask(talk, "conversation", rollout="c")))
    assert [row["role"] for row in ask(talk, "conversation", rollout="c", span=spans[0])] == ["tools", "user", "answer"]
    rows = ask(talk, "conversation", rollout="c", span=spans[1])
    assert [row["role"] for row in rows] == ["user", "assistant", "tool", "answer"]


@pytest.mark.parametrize(
    ("request_json", "roles"),
    [
        ("no JSON", ["user", "answer"]),
        ('{"input": "Say it.", "instructions": "Be kind."}', ["system", "user", "answer"]),
        ('{"messages": [null, 7, {"content": {"a": 1}}]}', ["message", "message", "message", "answer"]),
        ('{"messages": []}', ["answer"]),
    ],
)
def test_messages_of_any_shape_are_shown(log: LogFile, request_json: str, roles: list[str]) -> None:
    log.write(state("c", run_id="r"))
    span = proxy_span(1, rollout_id="c", request_json=request_json, response_json="also none")
    log.write_and_assemble(opened("c", run_id="r"), span, closed("c"))
    rows = ask(log, "conversation", rollout="c")
    assert [row["role"] for row in rows] == roles
    assert rows[-1]["text"] == "also none"


def test_of_a_long_message_the_begin_and_the_end_are_given(log: LogFile) -> None:
    log.write(state("c", run_id="r"))
    text = "begin" + 50_000 * "x" + "end"
    log.write_and_assemble(opened("c", run_id="r"), call(1, [{"role": "user", "content": text}], ANSWER), closed("c"))
    (row, _) = ask(log, "conversation", rollout="c")
    assert row["characters"] == len(text)
    assert len(row["text"]) <= 20_000
    assert row["text"].startswith("begin")
    assert row["text"].endswith("end")
    assert f"[… {len(text) - 19_900} characters …]" in row["text"]


@pytest.fixture
def tools(log: LogFile) -> LogFile:
    """A run ``r``: two rollouts of step 1 that used a tool, and two of step 2, in one of which it failed."""
    for number in range(4):
        rollout, is_late = f"r{number}", number >= 2
        spec: dict[str, Any] = {"run_id": "r", "group_id": f"g{is_late}", "group_size": 2, "mode": RolloutMode.TRAIN}
        failed: dict[str, Any] = {"status": SpanStatus.ERROR, "status_message": "a\nno answer"} if number == 3 else {}
        log.write(state(rollout, **spec, input_json=str(number)))
        log.write_and_assemble(
            opened(rollout, **spec),
            proxy_span(10 * number + 1, rollout_id=rollout, policy_version=1),
            *([framework_span(10 * number + 2, TOOL, rollout_id=rollout, name="add", **failed)] if number else []),
            reward_span(100 + number, float(number != 3), rollout_id=rollout),
            closed(rollout),
        )
    for step in (1, 2):
        used = [
            ConsumedTrajectory(
                rollout_id=f"r{number}",
                attempt_id=f"r{number}-a1",
                revision=0,
                group_id=f"g{step == 2}",
                triplet_count=1,
            )
            for number in (2 * step - 2, 2 * step - 1)
        ]
        log.write(training_step(step, StepOutcome.UPDATED, run_id="r", consumed=used))
    return log


def test_tools_have_their_errors_and_the_reward_with_and_without_them(tools: LogFile) -> None:
    (row,) = ask(tools, "tools", run="r")
    assert (row["tool_name"], row["calls"], row["errors"], row["rollouts"]) == ("add", 3, 1, 3)
    assert row["reward_with"] == pytest.approx(2 / 3)
    assert (row["reward_without"], row["reward_failed"], row["error_rollout"]) == (1.0, 0.0, "r3")
    assert row["last_error"] == "a\nno answer"
    assert ask(tools, "tools", run="another") == []


def test_errors_are_counted_by_their_last_line(tools: LogFile) -> None:
    (row,) = ask(tools, "errors", run="r")
    assert (row["place"], row["name"], row["error"], row["count"], row["example"]) == (
        "tool",
        "add",
        "no answer",
        1,
        "r3",
    )
    assert sum(row["counts"]) == 1
    assert len(row["counts"]) == 20


def test_a_step_is_compared_with_another(tools: LogFile) -> None:
    rows = {(row["kind"], row["name"]): row for row in ask(tools, "step-changes", run="r", step=2, before=1)}
    assert {key: (row["before"], row["now"]) for key, row in rows.items() if key[0] != "length"} == {
        ("rollouts", "mean reward"): (1.0, 0.5),
        ("error", "tool add: no answer"): (0.0, 1.0),
        ("tool calls", "add"): (1.0, 2.0),
        ("tool errors", "add"): (0.0, 0.5),
    }
    assert rows["error", "tool add: no answer"]["example"] == "r3"


def test_a_step_with_many_tasks_still_tells_of_everything_else(log: LogFile) -> None:
    """Each of 60 tasks is in both steps; the first attempt of each rollout was long, and failed."""
    task = "a text that all of the tasks begin with: " + 300 * "x"
    consumed: list[list[ConsumedTrajectory]] = [[], []]
    states: list[Any] = []
    spans: list[Any] = []
    for number in range(120):
        rollout, group = f"r{number:03}", f"g{number:03}"
        spec: dict[str, Any] = {"run_id": "r", "group_id": group, "mode": RolloutMode.TRAIN}
        states.append(state(rollout, **spec, input_json=json.dumps(f"{task} {number % 60}")))
        late = number >= 60
        spans += [
            opened(rollout, **spec),
            proxy_span(2 * number, response=range(100), rollout_id=rollout),
            closed(rollout, final=False),
            opened(rollout, attempt=2, **spec),
            proxy_span(2 * number + 1, response=range(3 + late), rollout_id=rollout, attempt=2),
            framework_span(10_000 + number, TOOL, rollout_id=rollout, attempt=2),
            reward_span(20_000 + number, number / 120, rollout_id=rollout, attempt=2),
            closed(rollout, attempt=2),
        ]
        used = ConsumedTrajectory(
            rollout_id=rollout, attempt_id=f"{rollout}-a2", revision=0, group_id=group, triplet_count=1
        )
        consumed[late].append(used)
    log.write(*states)
    log.write_and_assemble(*spans)
    steps = [training_step(n, StepOutcome.UPDATED, run_id="r", consumed=one) for n, one in enumerate(consumed, 1)]
    log.write(*steps)
    rows = ask(log, "step-changes", run="r", step=2, before=1)
    kinds = Counter(row["kind"] for row in rows)
    assert kinds == {"rollouts": 1, "length": 3, "tool calls": 1, "tool errors": 1, "task": 50}
    (tokens,) = [row for row in rows if row["name"] == "response tokens of a rollout"]
    assert (tokens["before"], tokens["now"]) == (3, 4), "of the last attempt"
    tasks = [row for row in rows if row["kind"] == "task"]
    assert len({row["name"] for row in tasks}) == 1
    assert len({row["example"] for row in tasks}) == 50


def test_rollouts_are_sorted_page_by_page(tools: LogFile) -> None:
    tools.write(state("none", run_id="r"))
    for sort, rewards in (("reward", [1.0, 1.0, 1.0, 0.0, None]), ("-reward", [0.0, 1.0, 1.0, 1.0, None])):
        found: list[dict[str, Any]] = []
        after: dict[str, Any] = {}
        while page := ask(tools, "rollouts", run="r", sort=sort, limit=2, **after):
            found += page
            last = page[-1]
            after = {"sort_key": last["sort_key"], "nanos": last["enqueued_unix_nano"], "id": last["rollout_id"]}
        assert [row["reward"] for row in found] == rewards
        assert len({row["rollout_id"] for row in found}) == 5


def test_rollouts_are_narrowed_by_reward_tool_error_and_task(tools: LogFile) -> None:
    def found(**given: Any) -> list[str]:
        return sorted(row["rollout_id"] for row in ask(tools, "rollouts", run="r", **given))

    assert found(reward_min=0.5) == ["r0", "r1", "r2"]
    assert found(reward_max=0.5) == found(error="no answer") == ["r3"]
    assert found(tool="add") == ["r1", "r2", "r3"]
    assert found(tool="add", reward_min=1) == ["r1", "r2"]
    (row,) = ask(tools, "rollout-figures", rollout="r2")
    assert found(task=row["task"]) == ["r2"]
    assert [one["rollout_id"] for one in ask(tools, "task-rollouts", task=row["task"])] == ["r2"]


def test_a_task_is_told_by_run_and_policy_over_all_of_its_rollouts(log: LogFile) -> None:
    """The first two of run ``a`` are the best and the worst; the last was consumed, and not learned from."""
    spans: list[Any] = []
    tried = [("a1", 1.0, 1), ("a2", 0.0, 1), *((f"a{number}", 0.5, 2) for number in range(3, 7)), ("b1", None, None)]
    for number, (rollout, reward, version) in enumerate(tried):
        spec: dict[str, Any] = {"run_id": rollout[0], "mode": RolloutMode.TRAIN}
        log.write(state(rollout, **spec, input_json='"same"', enqueued_unix_nano=number + 1))
        spans += [
            opened(rollout, **spec),
            proxy_span(number, rollout_id=rollout, policy_version=version),
            *([] if reward is None else [reward_span(100 + number, reward, rollout_id=rollout)]),
            closed(rollout),
        ]
    log.write(state("other", run_id="a", input_json='"another"'))
    log.write_and_assemble(*spans)
    used = [
        ConsumedTrajectory(rollout_id=r, attempt_id=f"{r}-a1", revision=0, group_id=r, triplet_count=count)
        for r, count in (("a5", 1), ("a6", 0))
    ]
    log.write(training_step(7, StepOutcome.UPDATED, run_id="a", consumed=used))
    task = hashlib.md5(b'"same"', usedforsecurity=False).hexdigest()
    rows = ask(log, "task", task=task)
    told = ("run_id", "policy_version", "rollouts", "reward", "low", "high", "best", "worst", "input_json")
    assert [tuple(row[name] for name in told) for row in rows] == [
        ("a", 1, 2, 0.5, 0.0, 1.0, "a1", "a2", '"same"'),
        ("a", 2, 4, 0.5, 0.5, 0.5, "a6", "a3", None),
        ("b", None, 1, None, None, None, None, None, None),
    ]
    lately = ask(log, "task-rollouts", task=task, limit=3)
    assert [(row["rollout_id"], row["step"]) for row in lately] == [("a5", 7), ("a6", None), ("b1", None)]
    assert "input_json" not in lately[0]
    assert ask(log, "task", task="of nothing") == []


LONG = {"role": "assistant", "content": [{"type": "text", "text": "a" * 3_000}, {"type": "text", "text": "end"}]}


@pytest.mark.parametrize(
    ("answer", "text", "tools"),
    [
        (ANSWER, "Two.", None),
        (USED, "", USED["tool_calls"]),
        (LONG, "a" * 3_000 + "\nend", None),
        ({"role": "assistant", "content": "So:", "tool_calls": USED["tool_calls"]}, "So:", USED["tool_calls"]),
        (
            {"role": "assistant", "content": None, "refusal": "No."},
            '{"role":"assistant","content":null,"refusal":"No."}',
            None,
        ),
        ("text", "text", None),
        (7, "7", None),
    ],
)
def test_a_list_of_rollouts_says_that_it_cuts_and_gives_all_when_asked(
    log: LogFile, answer: Any, text: str, tools: Any
) -> None:
    task = json.dumps({"question": "q" * 1_000})
    log.write(state("c", run_id="r", input_json=task))
    log.write_and_assemble(opened("c", run_id="r"), call(1, [USER], answer), closed("c"))
    (whole,) = ask(log, "rollouts", run="r", answers="1", whole="1")
    assert (whole["input_json"], whole["answer"]) == (task, text)
    assert json.loads(whole["tool_calls"] or "null") == tools
    (cut,) = ask(log, "rollouts", run="r", answers="1")
    assert cut["input_json"] == task[:399] + "…"
    assert cut["answer"] == (text if len(text) <= 2_000 else "a" * 1_999 + "…")


def test_a_filter_of_a_run_finds_nothing_of_another(tools: LogFile) -> None:
    tools.write(state("s", run_id="s"))
    failed: dict[str, Any] = {"status": SpanStatus.ERROR, "status_message": "no answer"}
    tools.write_and_assemble(
        opened("s", run_id="s"),
        proxy_span(900, rollout_id="s", http_status=500, error_message="no answer"),
        framework_span(901, TOOL | {"tool.name": "sub"}, rollout_id="s", **failed),
        closed("s"),
    )
    assert [row["rollout_id"] for row in ask(tools, "rollouts", run="r", error="no answer")] == ["r3"]
    assert [row["rollout_id"] for row in ask(tools, "rollouts", run="s", error="no answer")] == ["s"]
    assert {row["rollout_id"] for row in ask(tools, "rollouts", error="no answer")} == {"r3", "s"}
    assert [row["tool_name"] for row in ask(tools, "tool-names", run="r")] == ["add"]
    assert [row["tool_name"] for row in ask(tools, "tool-names", run="s")] == ["sub"]


def test_a_tool_that_failed_without_a_text_is_found_by_its_name(tools: LogFile) -> None:
    tools.write(state("s", run_id="s"))
    tools.write_and_assemble(
        opened("s", run_id="s"),
        framework_span(901, TOOL | {"tool.name": "mute"}, rollout_id="s", status=SpanStatus.ERROR),
        closed("s"),
    )
    (row,) = ask(tools, "errors", run="s")
    assert (row["place"], row["name"], row["error"], row["example"]) == ("tool", "mute", "", "s")
    assert [found["rollout_id"] for found in ask(tools, "rollouts", run="s", error=row["name"])] == ["s"]


def test_the_marks_of_a_rollout_change_with_whatever_comes_of_it(tools: LogFile) -> None:
    def marks() -> dict[str, Any]:
        (row,) = ask(tools, "rollout-marks", rollout="r0")
        return row

    first = marks()
    assert (first["spans"], first["trajectories"], first["consumed"], first["of_group"]) == (2, 1, 1, 2)
    tools.write_and_assemble(reward_span(950, 0.5, rollout_id="r2"))
    assert marks() == first, "of another group"
    tools.write_and_assemble(reward_span(951, 0.5, rollout_id="r1"))
    assert marks() == first | {"of_group": 3}
    tools.write_and_assemble(reward_span(952, 0.5, rollout_id="r0"))
    assert marks() == first | {"spans": 3, "trajectories": 2, "of_group": 4}


def test_rewards_are_counted_by_range(tools: LogFile) -> None:
    rows = ask(tools, "reward-histogram", run="r")
    assert [(row["bin"], row["low"], row["high"], row["count"]) for row in rows] == [
        (0, 0.0, 0.0, 1),
        (19, 1.0, 1.0, 3),
    ]
    assert ask(tools, "reward-histogram", run="another") == []


def test_traffic_is_sampled_by_input_and_not_by_what_a_run_enqueued(log: LogFile) -> None:
    begun: list[tuple[str, str, dict[str, Any]]] = [
        ("t1", '"a"', {}),
        ("t2", '"a"', {"mode": RolloutMode.UNKNOWN}),
        ("t3", '"b"', {}),
        ("t4", "null", {}),
        ("r1", '"c"', {"run_id": "r"}),
        ("g1", '"d"', {"group_id": "g"}),
        ("v1", '"e"', {"mode": RolloutMode.VAL}),
    ]
    for number, (rollout, text, spec) in enumerate(begun):
        log.write(state(rollout, input_json=text, enqueued_unix_nano=number + 1, **spec))
    log.write_and_assemble(
        opened("t3"),
        framework_span(91, {"gen_ai.agent.name": "shop"}, rollout_id="t3"),
        proxy_span(1, rollout_id="t3", parent=91),
        closed("t3"),
    )
    found = ask(log, "traffic-tasks")
    assert sorted((row["input_json"], row["rollouts"]) for row in found) == [('"a"', 2), ('"b"', 1)]
    assert ask(log, "traffic-tasks", limit=1) == found[:1]
    assert [row["input_json"] for row in ask(log, "traffic-tasks", agent="shop")] == ['"b"']
    assert [row["input_json"] for row in ask(log, "traffic-tasks", since_unix_nano=3)] == ['"b"']


def test_tasks_that_a_run_was_trained_on_are_counted(log: LogFile) -> None:
    for rollout, run, text in (("a1", "a", '"x"'), ("a2", "a", '"y"'), ("b1", "b", '"z"')):
        log.write(state(rollout, run_id=run, input_json=text))
        log.write_and_assemble(opened(rollout, run_id=run), proxy_span(1, rollout_id=rollout), closed(rollout))
    for number, text in enumerate(('"x"', '"x"', '"y"', '"z"', '"new"')):
        notes = json.dumps({"evaluation": {"model": "m", "task": max(number - 1, 0)}})
        log.write(state(f"e{number}", run_id="e", input_json=text, metadata_json=notes))
    for run, rollouts in (("a", {"a1": 1, "a2": 0}), ("b", {"b1": 1})):
        used = [
            ConsumedTrajectory(rollout_id=r, attempt_id=f"{r}-a1", revision=0, group_id=r, triplet_count=count)
            for r, count in rollouts.items()
        ]
        log.write(training_step(1, StepOutcome.UPDATED, run_id=run, consumed=used))
    counts = [ask(log, "trained-inputs", evaluation="e", run=run)[0]["tasks"] for run in ("a", "b", "none")]
    assert counts == [1, 1, 0], "of run a one was consumed, and not learned from"
