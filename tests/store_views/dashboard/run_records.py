"""Records of small runs as they lie in the log: what the dashboard's tests look at."""

from __future__ import annotations

import json
from typing import Any

from lightstream.schemas.records import (
    ConsumedTrajectory,
    DeadLetter,
    DeadLetterReason,
    GateReport,
    LlmCall,
    PolicyVersionRun,
    Record,
    ResourcesRecord,
    RolloutMode,
    RolloutSpec,
    RolloutStatus,
    SpanEventRecord,
    SpanLinkRecord,
    SpanRecord,
    SpanStatus,
    StepOutcome,
    TrainingStep,
    WorkerHeartbeat,
    WorkerStatus,
)
from lightstream.schemas.releases import Author, Release, offer, pause, set_stable
from lightstream.schemas.topics import (
    DEAD_LETTERS,
    RELEASES,
    RESOURCES,
    ROLLOUTS,
    TRAINING_STEPS,
    WORKERS,
    Topic,
)
from tests.store_views.dashboard.log_records import (
    SECOND,
    Log,
    call_record,
    log_rollout,
    log_version,
    reward_record,
    span_record,
    state_record,
)
from tests.stream_processors.assembly.build import proxy_span

RUN, SEARCH, LOST = "arithmetic", "prompt-search", "lost-calls"
STEPS, GROUPS, MEMBERS = 14, 4, 4
STEP_OF_DROP = 12
"""Its rewards are lower than those of the step before: the tool timed out in the rollouts that got none."""
TIMED_OUT = "TimeoutError: multiply took longer than 5 s"
LARGE, LARGE_SPANS = "large-rollout", 10_000
LONG, LONG_CHARACTERS = "long-messages", 4_000_000
TALK, TALK_TURNS, TALK_CHARACTERS = "long-talk", 50, 40_000
"""Rollout of so many calls that go on with each other's messages, the first of which is so long."""
WAITING = "waiting-rollout"
RELEASE = "support-agent"
"""Release with a candidate."""
REWARDED = "rewarded-calls"
"""Run of one rollout of that id: calls of two policies, and rewards that went to each thing that they can go to."""
NOT_TRAINED = {
    reason: f"not-trained-{reason}"
    for reason in ("no_reward", "no_signal", "stale", "no_logprobs", "too_long", "not_comparable")
}
"""Reason -> run of which nothing trained for it."""
FAILING, DISCARDED, STUCK = "failing", "discarded-step", "stuck"
"""Runs of which half the rollouts failed; whose last step was discarded; that nobody takes rollouts of."""
COLLAPSED, COLLAPSED_STEPS = "collapsed", 6
"""Run whose entropy falls to nothing, and in whose last step other weights answered than were trained."""

XSS = (
    "<script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>",
    '"><svg onload=window.hacked=1>',
    "javascript:window.hacked=1",
    "{{constructor.constructor('window.hacked = 1')()}}",
    "</title></textarea></style><iframe srcdoc='<script>parent.hacked = 1</script>'>",
)
"""Texts of which each would run a script where a page took it for markup."""
HOSTILE = f"hostile {XSS[1]}"
"""Run that has them in every text."""


def log_of_runs(now_unix_nano: int) -> list[tuple[Topic, str, Record]]:
    """Topic, key and record, in the order of the log; the last of them a moment before ``now_unix_nano``."""
    log = Log()
    start = now_unix_nano - (STEPS + 2) * 20 * SECOND
    _training(log, start)
    _search(log, start)
    _lost(log, start)
    _hostile(log, start)
    _rewarded(log, start)
    _alarming(log, start)
    _large(log, start)
    _long(log, start)
    _talk(log, start)
    _releases(log, start)
    spec = RolloutSpec(rollout_id=WAITING, run_id=RUN, input_json='"What is 2 + 2?"', enqueued_unix_nano=now_unix_nano)
    log.write(ROLLOUTS, WAITING, state_record(spec, RolloutStatus.QUEUING, now_unix_nano, None))
    for kind, status in (("trainer", WorkerStatus.BUSY), ("runner", WorkerStatus.BUSY), ("runner", WorkerStatus.IDLE)):
        worker = f"{kind}-{status}"
        beat = WorkerHeartbeat(
            worker_id=worker, kind=kind, host="node-1", pid=4711, status=status, heartbeat_unix_nano=now_unix_nano
        )
        log.write(WORKERS, worker, beat)
    letter = DeadLetter(
        reason=DeadLetterReason.NOT_AVRO,
        detail=f"the value does not begin with Avro's marker {XSS[0]}",
        origin_topic="spans",
        origin_partition=0,
        origin_offset=17,
        value=XSS[1].encode(),
        value_size=len(XSS[1]),
        reported_by="assembler",
        observed_unix_nano=now_unix_nano,
    )
    log.write(DEAD_LETTERS, "spans-0-17", letter)
    return log.records


def _releases(log: Log, at: int) -> None:
    """A release with a candidate that passed the gate, hostile reasons, and a second one that is paused."""
    author = Author("command line, ada", f"better on the fixed set {XSS[0]}", at)
    first = set_stable(Release(RELEASE, None), author, f"{RUN}@5")
    offered = offer(Release(RELEASE, first), author, f"{RUN}@6", 0.25, report_id="report-1")
    other = set_stable(Release("x" * 60, None), author, "a model without a run " + "m" * 60)
    check = {"task_set": "fixed", "figure": "reward", "kind": "better", "tasks": 64, "passed": True}
    figures = {"stable_mean": 0.4, "candidate_mean": 0.75, "limit": 0.0, "probability": 0.0004}
    report = GateReport.model_validate(
        {
            "report_id": "report-1", "release": RELEASE, "stable": first.stable, "candidate": offered.candidate,
            "outcome": "passed", "error_rate": 0.01, "checks": [check | figures], "sets": [],
            "notes": [f"cost could not be checked {XSS[1]}"], "by": "learner", "created_unix_nano": at,
        }
    )  # fmt: skip
    for record in (first, report, offered, other, pause(Release(other.release, other), author)):
        log.write(RELEASES, record.release, record)
    for number, arm in enumerate(["stable", "stable", "candidate"]):
        told = {"name": RELEASE, "arm": arm, "model": f"{RUN}@{6 if arm == 'candidate' else 5}", "key": f"s{number}"}
        attributes = {f"lightstream.release.{name}": value for name, value in told.items()}
        span = proxy_span(number + 1, attributes=attributes).model_copy(
            update={"rollout_id": None, "attempt_id": None, "start_unix_nano": at + 1, "end_unix_nano": at + SECOND}
        )
        log.span(span, span.trace_id)


def _training(log: Log, start: int) -> None:
    """A run that learns; some of its calls lack token ids, some attempts fail, some groups are flat."""
    log_version(log, RUN, 0, start, STEPS)
    for step in range(1, STEPS + 1):
        at = start + step * 20 * SECOND
        consumed: list[ConsumedTrajectory] = []
        rewards: list[float] = []
        flat = 0
        for group in range(GROUPS):
            group_id = f"{RUN}-s{step}-g{group}"
            a, b = 3 * step + group, 7 + 2 * group
            share = min(MEMBERS, (step * MEMBERS + group) // STEPS) - 2 * (step == STEP_OF_DROP)
            good = [(member + group + step) % MEMBERS < share for member in range(MEMBERS)]
            is_flat = len(set(good)) == 1
            flat += is_flat
            for member in range(MEMBERS):
                spec = RolloutSpec(
                    rollout_id=f"{group_id}-{member}",
                    run_id=RUN,
                    group_id=group_id,
                    group_size=MEMBERS,
                    resources_id=f"{RUN}-v{step - 1}",
                    input_json=json.dumps({"question": f"What is {a} × {b}?", "answer": a * b}),
                    enqueued_unix_nano=at + member,
                )
                fault = "no_token_ids" if (step + group + member) % 11 == 0 else ""
                if step == 5 and group == 2 and member == 1:
                    fault = "failed"
                if step == STEP_OF_DROP and not good[member] and not fault:
                    fault = "timed_out"
                is_lost = fault in ("no_token_ids", "failed")
                reward = float(good[member])
                _arithmetic(log, spec, at + SECOND, (a, b), reward, step, fault)
                if not is_lost:
                    rewards.append(reward)
                consumed.append(
                    ConsumedTrajectory(
                        rollout_id=spec.rollout_id,
                        attempt_id=f"{spec.rollout_id}-a1",
                        revision=0,
                        group_id=group_id,
                        triplet_count=0 if is_lost or is_flat else 2,
                        not_trained={"no_calls": 1} if is_lost else {"no_signal": 2} if is_flat else {},
                    )
                )
        mean = sum(rewards) / len(rewards)
        metrics = {
            "reward/mean": mean,
            "loss": -0.02 * mean,
            "grad_norm": 1.2 - 0.4 * mean,
            "actor/entropy": 2.1 - 1.6 * mean,
            "groups/without_signal": float(flat),
            "response_tokens/mean": 9.0,
        }
        made = TrainingStep(
            trainer_id=RUN,
            run_id=RUN,
            step=step,
            steps_planned=30,
            resources_id=f"{RUN}-v{step}",
            consumed=consumed,
            metrics=metrics,
            started_unix_nano=at + 15 * SECOND,
            ended_unix_nano=at + 17 * SECOND,
        )
        log.write(TRAINING_STEPS, RUN, made)
        log_version(log, RUN, step, at + 17 * SECOND, STEPS)


def _arithmetic(
    log: Log, spec: RolloutSpec, at: int, numbers: tuple[int, int], reward: float, step: int, fault: str
) -> None:
    a, b = numbers
    question = [{"role": "system", "content": "Use the tool, then answer with the number alone."}]
    question.append({"role": "user", "content": f"What is {a} × {b}?"})
    tool_call = {
        "id": "t1",
        "type": "function",
        "function": {"name": "multiply", "arguments": json.dumps({"a": a, "b": b})},
    }
    asked = {"role": "assistant", "content": None, "tool_calls": [tool_call]}
    answer = str(a * b if reward else a + b)
    result = TIMED_OUT if fault == "timed_out" else str(a * b)
    after = [*question, asked, {"role": "tool", "tool_call_id": "t1", "content": result}]
    prompt = list(range(100, 124))
    first = [31, 32, 33, 34, 35, 36]
    ids = fault != "no_token_ids"
    agent = {"agent.name": "calculator", "openinference.span.kind": "AGENT"}
    root = span_record(spec, 1, "answer", at, 4 * SECOND, attributes=agent)
    used = {"tool.name": "multiply", "openinference.span.kind": "TOOL", "input.value": json.dumps({"a": a, "b": b})}
    told = {"failed": "division by zero", "timed_out": TIMED_OUT}.get(fault, "")
    ended: dict[str, Any] = (
        {"status": SpanStatus.ERROR, "status_message": told, "attributes": used}
        if told
        else {"attributes": used | {"output.value": result}}
    )
    spans = [
        call_record(spec, 2, 1, at + SECOND // 10, question, asked, prompt, first, step - 1, ids),
        span_record(spec, 3, "multiply", at + 2 * SECOND, SECOND // 2, parent=1, **ended),
    ]
    if fault == "failed":
        spans = spans[1:]
    else:
        second = [*prompt, *first, 40, 41, 42]
        spans.append(
            call_record(
                spec,
                4,
                1,
                at + 5 * SECOND // 2,
                after,
                {"role": "assistant", "content": answer},
                second,
                [51, 52, 53],
                step - 1,
                ids,
            )
        )
        spans.append(reward_record(spec, 5, reward, at + 4 * SECOND))
    log_rollout(log, spec, [root, *spans], at, failed=fault == "failed")


def _search(log: Log, start: int) -> None:
    """A search for a prompt: three were measured."""
    tree = [
        ("v0", "", "Answer.", 0.25),
        ("v1", "v0", "Answer with the number alone.", 0.5),
        ("v2", "v1", "Use the tool.\nAnswer with the number alone.", 0.875),
    ]
    for number, (name, parent, template, score) in enumerate(tree):
        spec = RolloutSpec(
            rollout_id=f"{SEARCH}-{name}",
            run_id=SEARCH,
            input_json=json.dumps({"prompt": name}),
            enqueued_unix_nano=start + number,
        )
        apo = {"lightstream.apo.prompt": name, "lightstream.apo.parent": parent, "lightstream.apo.template": template}
        critique = apo | {"gen_ai.completion.0.content": f"{parent} does not say to use the tool."}
        spans = [
            span_record(spec, 1, "lightstream.apo.critique", start, SECOND, attributes=critique),
            span_record(
                spec,
                2,
                "lightstream.apo.score",
                start + SECOND,
                SECOND,
                attributes=apo | {"lightstream.apo.score": score, "lightstream.apo.tasks": 8},
            ),
        ]
        log_rollout(log, spec, spans, start)


def _lost(log: Log, start: int) -> None:
    """A run whose model server says no token ids."""
    for number in range(6):
        spec = RolloutSpec(
            rollout_id=f"{LOST}-{number}",
            run_id=LOST,
            input_json='{"question": "2 × 3?"}',
            enqueued_unix_nano=start + number,
        )
        _arithmetic(log, spec, start + number, (2, 3), 1.0, 1, "no_token_ids")


def _hostile(log: Log, start: int) -> None:
    for number, text in enumerate(XSS):
        spec = RolloutSpec(
            rollout_id=f"hostile-{number} {text}"[:200],
            run_id=HOSTILE,
            group_id=f"group {XSS[1]}",
            group_size=len(XSS),
            input_json=json.dumps({"question": text, text: text}),
            metadata_json=json.dumps({text: text}),
            enqueued_unix_nano=start + number,
        )
        message = [{"role": text, "content": [{"type": "text", "text": text, text: text}]}]
        call = call_record(
            spec, 2, 1, start, message, {"role": "assistant", "content": text}, [1, 2], [3, 4, 5], 0, True
        )
        spans = [span_record(spec, 1, text, start, SECOND, attributes={text: text}, status_message=text), call]
        spans += _hostile_spans(spec, start, text)
        log_rollout(
            log,
            spec,
            [*spans, reward_record(spec, 3, 0.5, start + SECOND, name=text)],
            start,
            failed=number == 1,
            error=text,
        )
    consumed = [
        ConsumedTrajectory(
            rollout_id="r", attempt_id="a", revision=0, group_id=XSS[0], triplet_count=0, not_trained={XSS[0]: 1}
        )
    ]
    step = TrainingStep(
        trainer_id=XSS[0],
        run_id=HOSTILE,
        step=1,
        consumed=consumed,
        metrics={"reward/mean": 0.5, XSS[1]: 1.0},
        started_unix_nano=start,
        ended_unix_nano=start + SECOND,
    )
    log.write(TRAINING_STEPS, HOSTILE, step)
    made = ResourcesRecord(
        resources_id=f"resources {XSS[1]}",
        version=0,
        run_id=HOSTILE,
        resources={XSS[0]: json.dumps({"template": XSS[1]})},
        model=XSS[0],
        created_unix_nano=start,
    )
    log.write(RESOURCES, made.resources_id, made)


def _hostile_spans(spec: RolloutSpec, start: int, text: str) -> list[SpanRecord]:
    """Every text of a span, a call that failed, and a prompt of a search."""
    link = SpanLinkRecord(trace_id="1" * 32, span_id="1" * 16, trace_state=text, attributes={text: text})
    told: dict[str, Any] = {
        "events": [SpanEventRecord(name=text, time_unix_nano=start, attributes={text: text})],
        "links": [link],
        "scope_name": text,
        "status": SpanStatus.ERROR,
        "status_message": text,
        "attributes": {"agent.name": text, "tool.name": text, text: [text, {text: text}]},
    }
    failed = LlmCall(
        response_id=text,
        requested_model=text,
        response_model=text,
        finish_reason=text,
        http_status=500,
        error_message=text,
        request_json=text,
        response_json=text,
    )
    prompt = {f"lightstream.apo.{name}": text for name in ("prompt", "parent", "template")}
    return [
        span_record(spec, 4, text, start, SECOND, parent=1, **told),
        span_record(spec, 5, text, start, SECOND, parent=1, llm_call=failed, **told),
        span_record(
            spec,
            6,
            "lightstream.apo.critique",
            start,
            SECOND,
            attributes=prompt | {"gen_ai.completion.0.content": f"critique {text}"},
        ),
        span_record(
            spec,
            7,
            "lightstream.apo.score",
            start,
            SECOND,
            attributes=prompt | {"lightstream.apo.score": 0.5, "lightstream.apo.tasks": 8},
        ),
    ]


def hostile_processes(now: int) -> list[tuple[Topic, str, Record]]:
    """Workers and dead letters with each of ``XSS`` in every text."""
    log = Log()
    for number, text in enumerate(XSS):
        beat = WorkerHeartbeat(
            worker_id=f"worker {text}",
            kind=f"kind {text}",
            host=f"host {text}",
            status=WorkerStatus.BUSY,
            rollout_ids=[f"hostile-{number} {text}"[:200]],
            heartbeat_unix_nano=now,
            stats_json=json.dumps({text: text}),
        )
        log.write(WORKERS, beat.worker_id, beat)
        letter = DeadLetter(
            reason=DeadLetterReason.NOT_AVRO,
            detail=f"detail {text}",
            origin_topic=f"topic {text}",
            origin_partition=0,
            origin_offset=number,
            value=f"value {text}".encode(),
            value_size=len(text),
            reported_by=f"reporter {text}",
            observed_unix_nano=now,
        )
        log.write(DEAD_LETTERS, f"hostile-{number}", letter)
    return log.records


def _rewarded(log: Log, start: int) -> None:
    spec = RolloutSpec(rollout_id=REWARDED, run_id=REWARDED, input_json="1", enqueued_unix_nano=start)
    user = [{"role": "user", "content": "Count."}]
    answer = {"role": "assistant", "content": None}
    first = call_record(spec, 1, 0, start, user, answer, [1, 2], [11, 12, 13, 14], 3, True)
    mixed = [
        PolicyVersionRun(first_token=0, policy_version=3),
        PolicyVersionRun(first_token=2, policy_version=4),
    ]
    assert first.llm_call is not None
    first = first.model_copy(
        update={
            "parent_id": None,
            "llm_call": first.llm_call.model_copy(update={"policy_version_runs": mixed}),
        }
    )
    second = call_record(spec, 2, 0, start + SECOND, user, answer, [1, 2, 3], [21, 22], 4, True)
    spans = [first, second.model_copy(update={"parent_id": None})]
    targets = [("linked", f"{1:016x}"), ("nowhere", f"{99:016x}"), ("whole", "")]
    for number, (name, target) in enumerate(targets):
        reward = reward_record(spec, 10 + number, 0.5 + number, start + 2 * SECOND, name).model_copy(
            update={"parent_id": None}
        )
        link = {"agentlightning.link.0.key_match": "span_id", "agentlightning.link.0.value_match": target}
        told = reward.attributes | (link if target else {})
        spans.append(reward.model_copy(update={"parent_id": None, "attributes": told}))
    log_rollout(log, spec, spans, start)


def _alarming(log: Log, start: int) -> None:
    """One run for each thing that a person should know of a run."""
    for reason, run in NOT_TRAINED.items():
        spec = RolloutSpec(rollout_id=f"{run}-0", run_id=run, input_json="1", enqueued_unix_nano=start)
        _arithmetic(log, spec, start, (2, 3), 1.0, 1, "")
        _step(log, spec, start, 0.25, reason)
    for number in range(2):
        spec = RolloutSpec(rollout_id=f"{FAILING}-{number}", run_id=FAILING, input_json="1", enqueued_unix_nano=start)
        _arithmetic(log, spec, start, (2, 3), 1.0, 1, "" if number else "failed")
    spec = RolloutSpec(rollout_id=f"{DISCARDED}-0", run_id=DISCARDED, input_json="1", enqueued_unix_nano=start)
    _arithmetic(log, spec, start, (2, 3), 1.0, 1, "")
    _step(log, spec, start, 0.0, "empty", StepOutcome.DISCARDED)
    for number in range(1, COLLAPSED_STEPS + 1):
        is_last = number == COLLAPSED_STEPS
        metrics = {
            "reward/mean": 0.5,
            "actor/entropy": 2.0 / 4**number,
            "actor/ppo_kl": 0.001,
            "grad_norm": 1.0,
            "logprob_diff_mean": 0.25 if is_last else 1.5e-7,
            "batch/staleness_max": 6.0 if is_last else 1.0,
            "tokens_per_second/update": 100.0 if is_last else 1_000.0,
        }
        at = start + 10 * number * SECOND
        step = TrainingStep(
            trainer_id=COLLAPSED,
            run_id=COLLAPSED,
            step=number,
            steps_planned=10,
            metrics=metrics,
            started_unix_nano=at,
            ended_unix_nano=at + SECOND,
        )
        log.write(TRAINING_STEPS, COLLAPSED, step)
    spec = RolloutSpec(rollout_id=f"{STUCK}-0", run_id=STUCK, input_json="1", enqueued_unix_nano=start)
    log.write(ROLLOUTS, spec.rollout_id, state_record(spec, RolloutStatus.QUEUING, start, None))


def _step(
    log: Log, spec: RolloutSpec, at: int, reward: float, reason: str, outcome: StepOutcome = StepOutcome.UPDATED
) -> None:
    """A step of the rollout's run, which learned nothing from it for that reason."""
    consumed = ConsumedTrajectory(
        rollout_id=spec.rollout_id,
        attempt_id=f"{spec.rollout_id}-a1",
        revision=0,
        group_id=spec.rollout_id,
        triplet_count=0,
        not_trained={reason: 2},
    )
    step = TrainingStep(
        trainer_id=spec.run_id,
        run_id=spec.run_id,
        step=1,
        outcome=outcome,
        consumed=[consumed],
        metrics={"reward/mean": reward},
        started_unix_nano=at,
        ended_unix_nano=at + SECOND,
    )
    log.write(TRAINING_STEPS, spec.run_id, step)


def _large(log: Log, start: int) -> None:
    """A tree of ten children each, every second one a call without token ids, and two that are each other's parents."""
    spec = RolloutSpec(
        rollout_id=LARGE, run_id=RUN, mode=RolloutMode.VAL, input_json='"a long one"', enqueued_unix_nano=start
    )
    spans = [
        span_record(
            spec,
            number,
            f"work {number}",
            start + number * 1_000_000,
            5_000_000,
            parent=number // 10 or None,
            llm_call=None if number % 2 else LlmCall(requested_model="policy", http_status=200),
        )
        for number in range(1, LARGE_SPANS - 1)
    ]
    spans += [span_record(spec, LARGE_SPANS - 1, "chicken", start, SECOND, parent=LARGE_SPANS)]
    spans += [span_record(spec, LARGE_SPANS, "egg", start, SECOND, parent=LARGE_SPANS - 1)]
    log_rollout(log, spec, spans, start)


def _long(log: Log, start: int) -> None:
    """A call with long messages, whose writer's clock is an hour behind the others."""
    spec = RolloutSpec(rollout_id=LONG, run_id=RUN, mode=RolloutMode.VAL, input_json="1", enqueued_unix_nano=start)
    messages = [{"role": "user", "content": "word " * (LONG_CHARACTERS // 5)}]
    answer = {"role": "assistant", "content": "yes"}
    log_rollout(
        log, spec, [call_record(spec, 1, 0, start - 3600 * SECOND, messages, answer, [1, 2], [3], 0, True)], start
    )


def _talk(log: Log, start: int) -> None:
    spec = RolloutSpec(rollout_id=TALK, run_id=RUN, mode=RolloutMode.VAL, input_json="1", enqueued_unix_nano=start)
    messages: list[Any] = [{"role": "user", "content": "begin" + "x" * (TALK_CHARACTERS - 8) + "end"}]
    calls: list[SpanRecord] = []
    for number in range(TALK_TURNS):
        answer = {"role": "assistant", "content": f"answer {number}"}
        at = start + number * SECOND
        calls.append(call_record(spec, number + 1, 0, at, messages, answer, [1, 2], [3], 0, True))
        messages = [*messages, answer, {"role": "user", "content": f"question {number}"}]
    log_rollout(log, spec, calls, start)
