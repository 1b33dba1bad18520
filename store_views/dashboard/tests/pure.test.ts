/** The parts of the pages that are plain functions. Run by `npm test`. */

import assert from "node:assert/strict";
import { test } from "node:test";

import type { MessageRow, SpanRow } from "../src/api/rollouts.ts";
import type { StepRow } from "../src/api/runs.ts";
import { isGroupSettled, isSettled } from "../src/api/settled.ts";
import { costLine, duration, figure, percent, taskLine } from "../src/format.ts";
import { changeKey, changesOf, difference } from "../src/pages/changes.ts";
import { comparedAs, runsOf } from "../src/pages/compared.ts";
import { toCsv, toJsonLines } from "../src/pages/exporting.ts";
import { healthAlarms, measuresOf, median } from "../src/pages/health.ts";
import { found, placeSpans, ruler, spanKey, unfolded } from "../src/pages/spanTree.ts";
import { candidatesOf } from "../src/pages/tries.ts";
import { answerLines, answerText, firstDifference, givenLine, turnsOf } from "../src/pages/turns.ts";

function message(span: string, place: number, role: string, text: string, more: Partial<MessageRow> = {}): MessageRow {
  const training = { call_index: 0, reward: null, policy_version: 3, sampled: 2, response_tokens: 2 };
  const said = { text, characters: text.length, reasoning: null, tool_calls: null, tool_call_id: null };
  return {
    attempt_id: "a1",
    span_id: span,
    agent_name: "",
    continues: true,
    continued_span_id: null,
    left_out: 0,
    error: null,
    place,
    role,
    ...training,
    ...said,
    ...more,
  };
}

const CALL = JSON.stringify([{ id: "t1", type: "function", function: { name: "add", arguments: '{"a": 1}' } }]);

test("calls become one conversation: each message once, results with the tools' calls", () => {
  const turns = turnsOf([
    message("1", 1, "user", "What?"),
    message("1", 9, "answer", "", { tool_calls: CALL }),
    message("2", 2, "assistant", "", { tool_calls: CALL, continued_span_id: "1" }), // what the model said before
    message("2", 3, "tool", "2", { tool_call_id: "t1", continued_span_id: "1" }),
    message("2", 9, "answer", "Two.", { continued_span_id: "1" }),
  ]);
  assert.deepEqual(
    turns.map((turn) => [turn.role, turn.text, turn.tools]),
    [
      ["user", "What?", []],
      ["assistant", "", [{ name: "add", given: '{"a": 1}', result: "2" }]],
      ["assistant", "Two.", []],
    ],
  );
  assert.deepEqual(
    turns.map((turn) => turn.call?.span_id),
    [undefined, "1", "2"],
  );
});

test("agents that speak by turns keep their tools and answers apart", () => {
  const of = (agent_name: string, continued_span_id: string | null = null) => ({ agent_name, continued_span_id });
  const turns = turnsOf([
    message("1", 9, "answer", "", { ...of("plan"), tool_calls: CALL }),
    message("2", 9, "answer", "", { ...of("write"), tool_calls: CALL }),
    message("3", 2, "assistant", "", { ...of("plan", "1"), tool_calls: CALL }),
    message("3", 3, "tool", "for plan", { ...of("plan", "1"), tool_call_id: "t1" }),
    message("4", 2, "assistant", "", { ...of("write", "2"), tool_calls: CALL }),
    message("4", 3, "tool", "for write", { ...of("write", "2"), tool_call_id: "t1" }),
  ]);
  assert.deepEqual(
    turns.map((turn) => [turn.agent, turn.tools.map((use) => use.result)]),
    [
      ["plan", ["for plan"]],
      ["write", ["for write"]],
    ],
  );
});

test("each attempt has its own tool calls, and begins with a mark", () => {
  const later = { attempt_id: "a2" };
  const turns = turnsOf([
    message("1", 1, "user", "What?"),
    message("1", 9, "answer", "", { tool_calls: CALL }),
    message("1", 1, "user", "What?", later),
    message("1", 2, "tool", "of another attempt", { ...later, tool_call_id: "t1" }),
    message("1", 9, "answer", "Two.", later),
  ]);
  assert.deepEqual(
    turns.map((turn) => [turn.role, turn.attempt, turn.tools.map((use) => use.result)]),
    [
      ["user", 1, []],
      ["assistant", null, [undefined]],
      ["user", 2, []],
      ["tool", null, []],
      ["assistant", null, []],
    ],
  );
  assert.equal(new Set(turns.map((turn) => turn.key)).size, turns.length);
});

test("a call with other messages restarts, and keeps what an assistant said in them", () => {
  const turns = turnsOf([
    message("1", 9, "answer", "One."),
    message("2", 1, "assistant", "Summary.", { continues: false }),
    message("2", 9, "answer", "Two.", { continues: false }),
  ]);
  assert.deepEqual(
    turns.map((turn) => [turn.text, turn.restarts]),
    [
      ["One.", false],
      ["Summary.", true],
      ["Two.", false],
    ],
  );
});

test("the result of an unknown call, and tool calls that are no JSON, are shown all the same", () => {
  const [result, odd] = turnsOf([message("1", 1, "tool", "lost", { tool_call_id: "?" }), message("1", 9, "answer", "", { tool_calls: "[cut" })]);
  assert.equal(result?.text, "lost");
  assert.deepEqual(odd?.tools, [{ name: "tool calls", given: "[cut", result: undefined }]);
});

test("the first difference is the first turn that is not the same", () => {
  const one = turnsOf([message("1", 1, "user", "a"), message("1", 9, "answer", "b")]);
  const other = turnsOf([message("2", 1, "user", "a"), message("2", 9, "answer", "c")]);
  assert.equal(firstDifference(one, other), 1);
  assert.equal(firstDifference(one, one), undefined);
  assert.equal(firstDifference(one, one.slice(0, 1)), 1);
});

test("answers and arguments are told in a line", () => {
  assert.equal(answerText('{"role": "assistant", "content": "x"}'), "x");
  assert.equal(answerText(`{"role": "assistant", "content": null, "tool_calls": ${CALL}}`), 'add({"a": 1})');
  assert.equal(answerText("no JSON"), "no JSON");
  assert.equal(answerLines("So:", CALL), 'So:\nadd({"a": 1})');
  assert.equal(answerLines(null, undefined), "");
  assert.equal(answerText(null), "");
  assert.equal(givenLine('{"a": 1, "b": "x"}'), "a: 1, b: x");
  assert.equal(givenLine("text"), "text");
});

function span(id: string, parent: string | null, more: Partial<SpanRow> = {}): SpanRow {
  return {
    span_id: id,
    parent_id: parent,
    name: id,
    status: "ok",
    start: 0,
    end: 1,
    kind: null,
    error: null,
    log_partition: 0,
    log_offset: Number(id),
    ...more,
  };
}

test("spans are a tree in which each comes once, cycles and lost parents included", () => {
  const placed = placeSpans([span("1", null), span("2", "1"), span("3", "2"), span("4", "9"), span("5", "6"), span("6", "5")]);
  assert.deepEqual(
    placed.map((one) => [one.span.span_id, one.depth, one.hasChildren]),
    [
      ["1", 0, true],
      ["2", 1, true],
      ["3", 2, false],
      ["4", 0, false],
      ["5", 0, true],
      ["6", 1, false],
    ],
  );
  const shown = unfolded(placed, new Set([spanKey(span("2", null))])).map((one) => one.span.span_id);
  assert.deepEqual(shown, ["1", "2", "4", "5", "6"]);
});

test("spans are found by each of the words: name, kind, error", () => {
  const placed = placeSpans([span("1", null, { name: "look up", kind: "tool", error: "Timeout" }), span("2", null, { name: "look", kind: "LLM" })]);
  const names = (words: string) => found(placed, words).map((one) => one.span.span_id);
  assert.deepEqual(names("look"), ["1", "2"]);
  assert.deepEqual(names("LOOK tool"), ["1"]);
  assert.deepEqual(names("error timeout"), ["1"]);
  assert.deepEqual(names("nothing"), []);
});

test("a ruler has few round times", () => {
  assert.deepEqual(ruler(4_000_000), [0, 1e6, 2e6, 3e6, 4e6]);
  assert.equal(ruler(1)[0], 0);
  assert.ok(ruler(7_777).length <= 7);
});

function step(number: number, metrics: Record<string, number>, more: Partial<StepRow> = {}): StepRow {
  const sizes = { trajectory_count: 4, group_count: 4, triplet_count: 4, seconds: 1, log_partition: 0, log_offset: number };
  const named = { outcome: "updated", cause: "", trainer_id: "t", steps_planned: 10, resources_id: null, policy_version: number };
  return { step: number, ended_unix_nano: String(number * 10_000_000_000), metrics, ...sizes, ...named, ...more };
}

test("changes come by their kind, with what is better and what is worse", () => {
  const errors = [{ kind: "error" as const, name: "timeout", before: 0, now: 3, example: "r" }];
  const reward = [{ kind: "rollouts" as const, name: "mean reward", before: 0.2, now: 0.5, example: null }];
  const rows = changesOf(step(2, { loss: 2, same: 1 }), step(1, { loss: 1, same: 1 }), [...errors, ...reward]);
  assert.deepEqual(
    rows.map((row) => [row.name, row.better]),
    [
      ["mean reward", true],
      ["timeout", false],
      ["loss", undefined],
    ],
  );
});

test("a side that is missing is no zero", () => {
  const rows = changesOf(step(2, {}), step(1, {}), [
    { kind: "rollouts", name: "mean reward", before: null, now: 0.5, example: null },
    { kind: "tool errors", name: "add", before: 0.5, now: null, example: null },
  ]);
  assert.deepEqual(
    rows.map((row) => [row.better, difference(row)]),
    [
      [undefined, null],
      [undefined, null],
    ],
  );
  assert.equal(difference({ before: 0, now: 0.5 }), 0.5);
  assert.equal(difference({ before: Number.NaN, now: 0.5 }), null);
});

test("a cost says which calls it lacks", () => {
  assert.deepEqual(
    [costLine(0.5, 0), costLine(0.5, 1), costLine(null, 2), costLine(null, 0)],
    ["$ 0.5", "$ 0.5 (1 call without a price)", "– (2 calls without a price)", "–"],
  );
});

test("two tasks that begin alike are two changes, and an error is one whatever its example", () => {
  const change = (kind: "task" | "error", example: string) => changeKey({ kind, name: "same", before: 0, now: 1, example });
  assert.notEqual(change("task", "r1"), change("task", "r2"));
  assert.equal(change("error", "r1"), change("error", "r2"));
  assert.notEqual(change("task", "r1"), change("error", "r1"));
});

test("the best and the worst of a task can be compared however old they are", () => {
  const tried = {
    run_id: "a",
    policy_version: 1,
    rollouts: 900,
    reward: 0.5,
    low: 0,
    high: 1,
    best: "old best",
    worst: "old worst",
    of_rollouts: 900,
    input_json: null,
  };
  const late = { rollout_id: "new", run_id: "a", mode: "train", status: "succeeded", group_id: "g", seconds: 1, enqueued_unix_nano: "1", step: null };
  const found = candidatesOf(
    [tried],
    [
      { ...late, reward: 0.5, policy_version: 1 },
      { ...late, rollout_id: "old best", reward: 1, policy_version: 1 },
    ],
  );
  assert.deepEqual(
    found.map((one) => [one.rollout_id, one.reward]),
    [
      ["old best", 1],
      ["old worst", 0],
      ["new", 0.5],
    ],
  );
});

test("a rollout is settled once it is over and training has decided, a group once all of its rollouts are", () => {
  assert.ok(isSettled("failed", "no_reward"));
  assert.ok(isSettled("succeeded", ""));
  assert.ok(!isSettled("running", ""));
  assert.ok(!isSettled("succeeded", "group_incomplete"));
  const member = { status: "succeeded", group_size: 2, step: 1, reason_code: null };
  assert.ok(isGroupSettled([member, { ...member, step: null, reason_code: "no_reward" }]));
  assert.ok(!isGroupSettled([member]), "one is to come");
  assert.ok(!isGroupSettled([member, { ...member, status: "running" }]));
  assert.ok(!isGroupSettled([member, { ...member, step: null }]), "nobody knows yet");
  assert.ok(!isGroupSettled([member, { ...member, step: null, reason_code: "not_consumed" }]));
  assert.ok(!isGroupSettled([]));
});

test("health tells what is not normal, and what is an alarm", () => {
  const well = measuresOf([step(1, { "actor/entropy": 2 }), step(2, { "actor/entropy": 1.5 })]);
  assert.deepEqual(
    well.map((one) => [one.name, one.state]),
    [
      ["Entropy", "normal"],
      ["Time left", "normal"],
    ],
  );
  assert.equal(well[1]?.value, "about 1 min 20 s");
  const ill = measuresOf([1, 2, 3, 4].map((number) => step(number, { "actor/entropy": number < 4 ? 2 : 0.01, logprob_diff_mean: number < 4 ? 0 : 0.3 })));
  assert.equal(healthAlarms(ill).length, 2);
  assert.deepEqual(measuresOf([]), []);
});

test("metrics that were no numbers are an alarm", () => {
  const none = "metrics/not_finite";
  const steps = [step(1, { loss: 1 }), step(2, { [none]: 2 })];
  const found = measuresOf(steps).find((one) => one.name === "No numbers, lately");
  assert.deepEqual([found?.state, found?.value, found?.curve], ["alarm", "2", [0, 2]]);
  assert.deepEqual(
    healthAlarms(measuresOf(steps)).map((alarm) => alarm.title),
    ["Step 2 measured what is no number: 2 metrics"],
  );
  const passed = [step(1, { [none]: 1 }), ...[2, 3, 4, 5, 6].map((number) => step(number, { loss: 1 }))];
  assert.deepEqual(healthAlarms(measuresOf(passed)), []);
});

test("the median of an even number of values is the mean of both in the middle", () => {
  assert.equal(median([3, 1, 2]), 2);
  assert.equal(median([4, 1, 2, 3]), 2.5);
  assert.equal(median([]), 0);
});

test("files have every column, and quote what needs it", () => {
  const rows = [
    { id: "a", text: 'x, "y"\n' },
    { id: "b", more: null },
  ];
  assert.equal(toCsv(rows).join(""), 'id,text,more\r\na,"x, ""y""\n",\r\nb,,\r\n');
  assert.deepEqual(toJsonLines(rows), ['{"id":"a","text":"x, \\"y\\"\\n"}\n', '{"id":"b","more":null}\n']);
});

test("no field of a file is a formula, and numbers stay numbers", () => {
  const field = (value: unknown) => toCsv([{ value }]).at(1)?.replace(/\r\n$/, "");
  for (const text of ["=1+1", "+1", "-1+1", "-", "@SUM(A1)", "\uFF1D1", "-1 or less", "--1"]) assert.equal(field(text), `'${text}`);
  assert.equal(field("\tx"), "'\tx");
  assert.equal(field('\r=HYPERLINK("x")'), `"'\r=HYPERLINK(""x"")"`);
  for (const number of [-1, -0.5, -1e-300, "-1", "-0.25", "-1e-300", "-12345678901234567890", "-inf"]) assert.equal(field(number), String(number));
  assert.equal(field("a=1"), "a=1");
  assert.equal(toCsv([{ "=1+1": "" }])[0], "'=1+1\r\n");
});

test("the runs of an address come back, whatever they are called", () => {
  for (const runs of [[], ["a"], ["a", "b"], ['["a"]'], ["[", "b"]]) assert.deepEqual(runsOf(comparedAs(runs)), runs);
});

test("figures, shares, times and tasks as people read them", () => {
  assert.deepEqual([figure(1234567), figure(0.123456), figure(0.0000123), figure(null)], ["1,234,567", "0.1235", "1.23e-5", "–"]);
  assert.deepEqual([percent(0, 0), percent(1, 1000), percent(999, 1000), percent(1, 2)], ["–", "< 1 %", "> 99 %", "50 %"]);
  assert.deepEqual([duration(0.00002), duration(0.5), duration(90), duration(7200)], ["20 µs", "500 ms", "1 min 30 s", "2 h 0 min"]);
  assert.deepEqual([taskLine('{"question": "Q"}'), taskLine('"x"'), taskLine("{")], ["Q", "x", "{"]);
});

test("a task that is cut is told as far as it goes", () => {
  const task = JSON.stringify({ level: { hard: true }, question: `Is "a" \\ or é?\n${"x".repeat(50)}` });
  for (let end = task.indexOf("Is") + 2; end < task.length; end += 1)
    for (const mark of ["", "…"]) assert.match(taskLine(task.slice(0, end) + mark), /^Is/, `cut at ${end}`);
  assert.equal(taskLine('"a long te…'), "a long te…");
  assert.equal(taskLine('{"answer": "a long te'), '{"answer": "a long te');
});
