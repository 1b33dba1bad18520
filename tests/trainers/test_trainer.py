"""Trainer.fit with algorithms of one's own, and VERL's odd steps, on a real Kafka with instant rollouts."""

from __future__ import annotations

import itertools
import json
import logging
import math
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from lightstream.runtime.kafka import run_headers
from lightstream.runtime.large_records import large_records_folder, put_aside
from lightstream.runtime.ports import free_port
from lightstream.runtime.schema_registry import codec_for
from lightstream.runtime.settings import Settings
from lightstream.schemas.codec import Codec
from lightstream.schemas.errors import TrainingError
from lightstream.schemas.packing import unpack_int32
from lightstream.schemas.records import (
    AttemptStatus,
    Drop,
    DropReason,
    ResourcesRecord,
    RolloutStatus,
    StepOutcome,
    Trajectory,
)
from lightstream.schemas.topics import RESOURCES, TRAJECTORIES
from lightstream.schemas.types import Assembly, EnqueueRolloutRequest, PromptTemplate, Rollout, RolloutConfig
from lightstream.trainers import VERL, AlgorithmContext, StepReport, Trainer, algo, make_tiny_model
from lightstream.trainers.ledger.reading import read_topic
from tests.support.waiting import eventually

from .support.instant_store import InstantStore
from .support.trajectories import random_trajectory


class PutBack(InstantStore):
    """Each rollout goes back into the queue and ends once more, before those of the next step are made."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._before: list[EnqueueRolloutRequest] = []

    async def enqueue_many_rollouts(self, rollouts: Sequence[EnqueueRolloutRequest]) -> list[Rollout]:
        for request in self._before:
            first = self.trajectory(request)
            again = first.model_copy(update={"attempt_id": f"{first.rollout_id}-again", "attempt_sequence": 2})
            headers = run_headers(again.run_id)
            self._publisher.publish(TRAJECTORIES, again.group_id or "", again, headers=headers)
        self._before = list(rollouts)
        return await super().enqueue_many_rollouts(rollouts)


class OfAnotherAgent(InstantStore):
    """The assembler keeps no call: none is by an agent that is trained."""

    def trajectory(self, request: EnqueueRolloutRequest) -> Trajectory:
        made = super().trajectory(request)
        detail = "agent 'writer' does not match '^write$'"
        drops = [Drop(span_id=t.span_id, reason=DropReason.AGENT_NOT_SELECTED, detail=detail) for t in made.triplets]
        return made.model_copy(update={"triplets": [], "drops": drops})


class WithoutReward(InstantStore):
    """Nobody rewards anything."""

    def trajectory(self, request: EnqueueRolloutRequest) -> Trajectory:
        made = super().trajectory(request)
        bare = [triplet.model_copy(update={"reward": None}) for triplet in made.triplets]
        return made.model_copy(update={"reward": None, "triplets": bare})


class RuleFails(WithoutReward):
    """The worker does not find the run's credit rule."""

    def trajectory(self, request: EnqueueRolloutRequest) -> Trajectory:
        drop = Drop(span_id="", is_llm_call=False, reason=DropReason.BAD_REWARD, detail="there is no module 'mine'.")
        return super().trajectory(request).model_copy(update={"drops": [drop]})


class ByAddress(InstantStore):
    """Every trajectory is too large for a record."""

    def trajectory(self, request: EnqueueRolloutRequest) -> Trajectory:
        folder = large_records_folder(self.settings)
        assert folder is not None
        head = put_aside(super().trajectory(request), Codec(), folder)
        assert head.triplets == []
        return head


class Failing(InstantStore):
    """Every attempt fails."""

    def trajectory(self, request: EnqueueRolloutRequest) -> Trajectory:
        return (
            super()
            .trajectory(request)
            .model_copy(
                update={
                    "reward": None,
                    "triplets": [],
                    "status": AttemptStatus.FAILED,
                    "rollout_status": RolloutStatus.FAILED,
                    "error_type": "ValueError",
                    "error_message": "first\nbetween\nlast\n",
                }
            )
        )


class AllEqual(InstantStore):
    """Every rollout is as good as every other."""

    def trajectory(self, request: EnqueueRolloutRequest) -> Trajectory:
        return super().trajectory(request).model_copy(update={"reward": 0.5})


def trainer_of(settings: Settings, algorithm: object, store: InstantStore, reports: list[StepReport]) -> Trainer:
    return Trainer(
        algorithm=algorithm,  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # any of the forms
        n_runners=0,
        settings=settings,
        store=store,
        trainer_id="trainer",
        observers=[reports.append],
        rollout_config=RolloutConfig(timeout_seconds=0.1),
    )


def test_a_function_trains_and_goes_on_where_it_was(settings: Settings) -> None:
    seen: list[str] = []

    def run(context: AlgorithmContext, steps: int) -> None:
        for step in range(context.last_step + 1, steps + 1):
            started = context.now()
            groups = context.collect(context.enqueue_step(step, tasks=2, rollouts_per_task=3))
            seen.extend(t.rollout_id for group in groups for t in group.trajectories)
            prompt = PromptTemplate(template=f"version {step}: {{task}}")
            record = context.resources_record(step, {"prompt": prompt})
            metrics = {"tried": 2.0, "loss": math.nan, "scale": math.inf, "policy/a/logprob_diff_max": math.nan}
            context.commit(step, groups, started_unix_nano=started, metrics=metrics, resources=record)

    reports: list[StepReport] = []
    tasks = ["a", "b", "c"]
    trainer_of(settings, algo(lambda context: run(context, 2)), InstantStore(settings), reports).fit(None, tasks)
    trainer_of(settings, lambda context: run(context, 3), InstantStore(settings), reports).fit(None, tasks)
    assert [report.step for report in reports] == [1, 2, 3]
    assert [report.resources_id for report in reports] == [f"trainer-v{step}" for step in (1, 2, 3)]
    assert reports[0].metrics["tried"] == 2.0
    assert reports[0].metrics["metrics/not_finite"] == 2.0, "where nothing was compared, there is no number to miss"
    assert len(seen) == len(set(seen)) == 3 * 2 * 3


def test_the_rollouts_of_a_run_carry_its_rules(settings: Settings) -> None:
    carried: list[Assembly | None] = []

    class Keeps(InstantStore):
        async def enqueue_many_rollouts(self, rollouts: Sequence[EnqueueRolloutRequest]) -> list[Rollout]:
            carried.extend(request.assembly for request in rollouts)
            return await super().enqueue_many_rollouts(rollouts)

    def run(context: AlgorithmContext) -> None:
        context.collect(context.enqueue_step(1, tasks=1, rollouts_per_task=2))
        context.validate(1)

    rules, others = Assembly(credit="last_call_only", trained_agents="^planner$"), Assembly(credit="identical")
    for name, assembly in (("one", rules), ("other", others), ("usual", None)):
        trainer = Trainer(
            algorithm=run,
            n_runners=0,
            settings=settings,
            store=Keeps(settings),
            trainer_id=name,
            assembly=assembly,
            progress=False,
        )
        trainer.fit(None, ["task"], ["another"])
    assert carried == [rules] * 3 + [others] * 3 + [None] * 3


def test_a_training_tells_its_health_and_names_its_run_in_each_line(settings: Settings, tmp_path: Path) -> None:
    asked = settings.model_copy(update={"trainer_port": free_port(), "log_format": "json"})
    url = f"http://127.0.0.1:{asked.trainer_port}"

    def run(context: AlgorithmContext) -> None:
        assert httpx.get(f"{url}/healthz", timeout=60).status_code == 200
        eventually(lambda: httpx.get(f"{url}/readyz", timeout=60).status_code == 200, what="ready")
        told = httpx.get(f"{url}/metrics", timeout=60).text
        assert 'lightstream_ready{server="trainer"} 1.0' in told
        assert "lightstream_training_last_step_unix_seconds" in told
        assert "\nlightstream_training_step " not in told, "there is none yet"
        context.commit(1, [], started_unix_nano=context.now())
        told = httpx.get(f"{url}/metrics", timeout=60).text
        assert "\nlightstream_training_step 1.0\n" in told
        assert "lightstream_training_reward_mean" not in told, "it has no rewards"
        logging.getLogger("lightstream.mine").warning("in its own thread")
        other = threading.Thread(target=logging.getLogger("lightstream.mine").warning, args=("in another",))
        other.start()
        other.join()

    trainer_of(asked, algo(run), InstantStore(asked), []).fit(None, ["a"])
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/healthz", timeout=60)
    lines = [json.loads(line) for line in (tmp_path / "logs" / "trainer.log").read_text().splitlines()]
    assert {"in its own thread", "in another"} <= {line["message"] for line in lines}
    assert {line["run_id"] for line in lines} == {"trainer"}


def test_a_step_must_follow_the_last_one(settings: Settings) -> None:
    def skip(context: AlgorithmContext) -> None:
        context.commit(2, [], started_unix_nano=context.now())

    with pytest.raises(TrainingError, match="step 2 cannot follow step 0"):
        trainer_of(settings, skip, InstantStore(settings), []).fit(None, ["task"])


def test_trajectories_that_came_by_address_are_trained_on(settings: Settings, tmp_path: Path) -> None:
    settings = settings.model_copy(
        update={"proxy_url": "http://127.0.0.1:9", "large_records_dir": settings.data_dir / "large"}
    )
    verl = VERL(
        model=make_tiny_model(tmp_path / "model"),
        steps=1,
        tasks_per_step=2,
        rollouts_per_task=4,
        device="cpu",
        threads=1,
        keep_checkpoints=5,
        logprob_gap_max=math.inf,  # no model has sampled them
    )
    reports: list[StepReport] = []
    trainer_of(settings, verl, ByAddress(settings), reports).fit(None, ["task"])
    (report,) = reports
    assert report.rollouts == 8
    assert report.rows >= 8, "each has a call at least"
    before, after = sorted((settings.data_dir / "checkpoints" / "trainer").iterdir())
    assert (before / "model.safetensors").read_bytes() != (after / "model.safetensors").read_bytes(), "it learned"


def verl_of(model: Path, **changes: Any) -> VERL:
    base: dict[str, Any] = {
        "model": model,
        "steps": 2,
        "tasks_per_step": 1,
        "rollouts_per_task": 2,
        "device": "cpu",
        "threads": 1,
        "keep_checkpoints": 5,
        "logprob_gap_max": math.inf,  # no model has sampled what it trains on
    }
    return VERL(**(base | changes))


@pytest.fixture
def nobody_serves(settings: Settings) -> Settings:
    """Settings with which no call is made: rollouts are instant."""
    return settings.model_copy(update={"proxy_url": "http://127.0.0.1:9"})


def test_steps_without_a_trainable_row_end_the_run_and_do_not_count(nobody_serves: Settings, tmp_path: Path) -> None:
    reports: list[StepReport] = []
    verl = verl_of(make_tiny_model(tmp_path / "model"))
    with pytest.raises(TrainingError, match=r"nothing could be trained on in 3 tries of step 1; reasons: no_reward"):
        trainer_of(nobody_serves, verl, WithoutReward(nobody_serves), reports).fit(None, ["task"])
    assert [(report.step, report.outcome) for report in reports] == [(1, StepOutcome.DISCARDED)] * 3
    assert [report.rollouts for report in reports] == [2, 2, 2], "consumed all the same"
    assert reports[0].metrics["rollouts/without_reward"] == 2
    assert [path.name[:11] for path in (nobody_serves.data_dir / "checkpoints" / "trainer").iterdir()] == [
        "step-000000"
    ]
    # After the fix, the same command goes on with new rollouts of the same step.
    store = InstantStore(nobody_serves)
    trainer_of(nobody_serves, verl, store, reports).fit(None, ["task"])
    assert store.asked[:2] == ["trainer-s1r3-g0-0", "trainer-s1r3-g0-1"]
    assert [report.step for report in reports if report.outcome is not StepOutcome.DISCARDED] == [1, 2]


def test_what_was_trained_stays_trained_when_its_rollouts_go_back_into_the_queue(settings: Settings) -> None:
    seen: list[tuple[str, int]] = []

    def run(context: AlgorithmContext, steps: int) -> None:
        for step in range(context.last_step + 1, steps + 1):
            started = context.now()
            groups = context.collect(context.enqueue_step(step, tasks=2, rollouts_per_task=3))
            seen.extend((t.rollout_id, t.attempt_sequence) for group in groups for t in group.trajectories)
            context.commit(step, groups, started_unix_nano=started, metrics={}, resources=None)

    store = PutBack(settings)
    trainer_of(settings, algo(lambda context: run(context, 2)), store, []).fit(None, ["a", "b"])
    trainer_of(settings, algo(lambda context: run(context, 4)), store, []).fit(None, ["a", "b"])
    assert len(seen) == len(set(seen)) == 4 * 2 * 3
    assert {attempt for _, attempt in seen} == {1}


def test_an_expression_that_no_agent_matches_is_what_ends_the_run(nobody_serves: Settings, tmp_path: Path) -> None:
    verl = verl_of(make_tiny_model(tmp_path / "model"))
    named = r"trained \(agent 'writer' does not match '\^write\$'\): see trained_agents, or adapter's agent_match"
    with pytest.raises(TrainingError, match=rf"in 3 tries of step 1; reasons: no_calls 2\. .*{named}"):
        trainer_of(nobody_serves, verl, OfAnotherAgent(nobody_serves), []).fit(None, ["task"])


def test_a_run_of_failures_ends_at_once_with_the_error(nobody_serves: Settings, tmp_path: Path) -> None:
    verl = verl_of(make_tiny_model(tmp_path / "model"))
    with pytest.raises(TrainingError, match=r"all 2 rollouts of step 1 failed; most often: ValueError: first … last\."):
        trainer_of(nobody_serves, verl, Failing(nobody_serves), []).fit(None, ["task"])


def test_a_rule_that_fails_is_what_ends_the_run(
    nobody_serves: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verl = verl_of(make_tiny_model(tmp_path / "model"))
    with pytest.raises(TrainingError, match=r"in 3 tries of step 1; most often: there is no module 'mine'\. "):
        trainer_of(nobody_serves, verl, RuleFails(nobody_serves), []).fit(None, ["task"])
    assert capsys.readouterr().out.count(" has no rewards: there is no module 'mine'") == 1


def test_equal_rewards_make_a_step_and_no_version(
    nobody_serves: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reports: list[StepReport] = []
    verl = verl_of(make_tiny_model(tmp_path / "model"))
    trainer_of(nobody_serves, verl, AllEqual(nobody_serves), reports).fit(None, ["task"])
    assert [(report.step, report.outcome) for report in reports] == [(s, StepOutcome.UNCHANGED) for s in (1, 2)]
    assert {report.resources_id for report in reports} == {"trainer-v0"}
    assert "all 1 groups have one reward each: nothing to learn" in capsys.readouterr().out


def test_another_model_or_data_set_under_the_same_name_is_refused(nobody_serves: Settings, tmp_path: Path) -> None:
    store = InstantStore(nobody_serves)
    model, other = make_tiny_model(tmp_path / "model"), make_tiny_model(tmp_path / "other", seed=1)
    trainer_of(nobody_serves, verl_of(model), store, []).fit(None, ["task"])
    asked = len(store.asked)
    for algorithm, tasks, difference in (
        (verl_of(other, steps=3), ["task"], "model: model .* before, other .* now"),
        (verl_of(model, steps=3), ["task", "more"], r"data set: 1 tasks .* before, 2 tasks"),
        (verl_of(model, steps=3, advantage="rloo"), ["task"], "VERL grpo before, VERL rloo now"),
        (verl_of(model, steps=3, rollouts_per_task=4), ["task"], "rollouts per task: 2 before, 4 now"),
    ):
        with pytest.raises(TrainingError, match=difference):
            trainer_of(nobody_serves, algorithm, store, []).fit(None, tasks)
    assert len(store.asked) == asked, "nobody was asked for anything"


def test_a_finished_run_says_so(nobody_serves: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, verl = InstantStore(nobody_serves), verl_of(make_tiny_model(tmp_path / "model"))
    for _ in range(2):
        trainer_of(nobody_serves, verl, store, []).fit(None, ["task"])
    said = capsys.readouterr().out
    assert "Run 'trainer' goes on after step 2." in said
    assert "Nothing left to do: 2 of 2 steps of run 'trainer' are made." in said


def test_a_target_that_holds_ends_the_run_early(nobody_serves: Settings, tmp_path: Path) -> None:
    reports: list[StepReport] = []
    verl = verl_of(make_tiny_model(tmp_path / "model"), steps=30, reward_target=0.4, reward_target_steps=2)
    trainer_of(nobody_serves, verl, InstantStore(nobody_serves), reports).fit(None, ["task"])
    rewards = [report.mean_reward for report in reports]
    assert len(rewards) < 30
    assert sum(rewards[-2:]) / 2 >= 0.4
    assert all(sum(pair) / 2 < 0.4 for pair in itertools.pairwise(rewards[:-1]))


def test_an_observer_that_raises_is_logged_and_training_goes_on(nobody_serves: Settings, tmp_path: Path) -> None:
    def fail(report: StepReport) -> None:
        raise RuntimeError(f"no room for step {report.step}")

    trainer = Trainer(
        algorithm=verl_of(make_tiny_model(tmp_path / "model")),
        n_runners=0,
        settings=nobody_serves,
        store=InstantStore(nobody_serves),
        trainer_id="trainer",
        observers=[fail],
    )
    trainer.fit(None, ["task"])
    log = (nobody_serves.data_dir / "logs" / "trainer.log").read_text()
    assert "no room for step 1" in log
    assert "no room for step 2" in log


def test_the_policy_is_validated_before_the_first_step_and_after_the_last(
    nobody_serves: Settings, tmp_path: Path
) -> None:
    reports: list[StepReport] = []
    verl = verl_of(make_tiny_model(tmp_path / "model"), validate_every=2, validation_samples=4)
    for _ in range(2):  # the second time there is nothing left to measure
        trainer_of(nobody_serves, verl, InstantStore(nobody_serves), reports).fit(None, ["task"], ["a", "b", "c"])
    assert [report.step for report in reports if "validation/reward_mean" in report.metrics] == [1, 2]
    assert reports[-1].outcome is StepOutcome.MEASURED
    measured = reports[-1].metrics
    assert measured["validation/tasks"] == 3
    assert 0 <= measured["validation/reward_mean"] <= measured["validation/pass@4"] <= 1


def test_a_run_with_more_steps_is_not_validated_twice_at_one_step(nobody_serves: Settings, tmp_path: Path) -> None:
    """Validation rollouts have names by step: they are asked for once, also where a step is discarded."""
    reports: list[StepReport] = []
    model = make_tiny_model(tmp_path / "model")
    for steps, store in ((1, InstantStore(nobody_serves)), (2, InstantStore(nobody_serves))):
        verl = verl_of(model, steps=steps, validate_every=1)
        trainer_of(nobody_serves, verl, store, reports).fit(None, ["task"], ["a"])
    assert [report.step for report in reports if "validation/reward_mean" in report.metrics] == [1, 1, 2]


@pytest.mark.parametrize(
    ("tasks", "problem"), [([], "the data set has no tasks"), ([object()], "task 0 of the data set cannot be sent")]
)
def test_tasks_that_cannot_be_sent_are_refused_before_anything_starts(
    tmp_path: Path, tasks: list[object], problem: str
) -> None:
    nowhere = Settings.load(data_dir=tmp_path, kafka_bootstrap_servers="127.0.0.1:1")
    trainer = Trainer(algorithm=algo(lambda context: None), settings=nowhere, n_runners=0, trainer_id="trainer")
    with pytest.raises(TrainingError, match=problem):
        trainer.fit(None, tasks)


def test_a_policy_is_measured_without_a_step(
    nobody_serves: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reports: list[StepReport] = []
    model = make_tiny_model(tmp_path / "model")
    only = verl_of(model, steps=0, val_only=True, validation_samples=2)
    with pytest.raises(TrainingError, match=r"val_only=True\) has no validation tasks"):
        trainer_of(nobody_serves, only, InstantStore(nobody_serves), reports).fit(None, ["task"])
    stores = [InstantStore(nobody_serves) for _ in range(2)]
    for store in stores:  # the second time it is known
        trainer_of(nobody_serves, only, store, reports).fit(None, ["task"], ["a", "b"])
    assert [(report.step, report.outcome) for report in reports] == [(0, StepOutcome.MEASURED)]
    assert reports[0].metrics["validation/tasks"] == 2
    assert [len(store.asked) for store in stores] == [4, 0]
    assert "The policy after step 0 of run 'trainer' is measured." in capsys.readouterr().out
    trainer_of(nobody_serves, verl_of(model), InstantStore(nobody_serves), reports).fit(None, ["task"], ["a", "b"])
    trainer_of(nobody_serves, only, InstantStore(nobody_serves), reports).fit(None, ["task"], ["a", "b"])
    assert [(report.step, report.outcome is StepOutcome.MEASURED) for report in reports[1:]] == [
        (1, False),
        (2, False),
        (2, True),
    ]


def test_what_was_generated_is_written_as_text(nobody_serves: Settings, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    model = make_tiny_model(tmp_path / "model")
    changes: dict[str, Any] = {
        "rollout_data_dir": tmp_path / "rollouts",
        "validation_data_dir": str(tmp_path / "validation"),
    }
    store = InstantStore(nobody_serves)
    verl = verl_of(model, validate_every=2, **changes)
    trainer_of(nobody_serves, verl, store, []).fit(None, ["task"], ["a", "b"])
    names = {folder: sorted(p.name for p in Path(path).iterdir()) for folder, path in changes.items()}
    assert names == {"rollout_data_dir": ["1.jsonl", "2.jsonl"], "validation_data_dir": ["0.jsonl", "2.jsonl"]}
    tokenizer: Any = AutoTokenizer.from_pretrained(model)
    lines = [json.loads(line) for line in (tmp_path / "rollouts" / "2.jsonl").read_text("utf-8").splitlines()]
    expected = [
        {
            "input": tokenizer.decode(unpack_int32(call.prompt_token_ids), skip_special_tokens=True),
            "output": tokenizer.decode(unpack_int32(call.response_token_ids), skip_special_tokens=True),
            "score": made.reward,
            "rollout_id": name,
            "task": None,
            "call_index": call.call_index,
            "step": 2,
            "group_id": "trainer-s2-g0",
        }
        for name in ("trainer-s2-g0-0", "trainer-s2-g0-1")
        for made in [
            random_trajectory(name, group_id="trainer-s2-g0", group_size=2, run_id="trainer", policy_version=1)
        ]
        for call in made.triplets
    ]
    assert lines == expected


def test_generations_of_failed_rollouts_have_a_line_each_and_a_full_folder_is_named(
    nobody_serves: Settings, tmp_path: Path
) -> None:
    model, folder = make_tiny_model(tmp_path / "model"), tmp_path / "rollouts"
    with pytest.raises(TrainingError, match="all 2 rollouts of step 1 failed"):
        trainer_of(nobody_serves, verl_of(model, rollout_data_dir=folder), Failing(nobody_serves), []).fit(None, ["t"])
    lines = [json.loads(line) for line in (folder / "1.jsonl").read_text("utf-8").splitlines()]
    assert [(line["input"], line["output"], line["score"], line["call_index"]) for line in lines] == [
        ("", "", None, None)
    ] * 2
    (tmp_path / "file").write_text("")
    wrong = verl_of(model, rollout_data_dir=tmp_path / "file" / "folder")
    with pytest.raises(TrainingError, match=r"the generations of step 1 cannot be written: .*File exists.*/file'"):
        trainer_of(nobody_serves, wrong, InstantStore(nobody_serves), []).fit(None, ["t"])


def test_agents_are_given_resources_beside_the_model_in_every_version(nobody_serves: Settings, tmp_path: Path) -> None:
    trainer = Trainer(
        algorithm=verl_of(make_tiny_model(tmp_path / "model")),
        n_runners=0,
        settings=nobody_serves,
        store=InstantStore(nobody_serves),
        trainer_id="trainer",
        initial_resources={"prompt": PromptTemplate(template="Say {task}.")},
    )
    trainer.fit(None, ["task"])
    published = [
        record.resources
        for _, record in read_topic(nobody_serves, RESOURCES, codec_for(nobody_serves), group_id="test")
        if isinstance(record, ResourcesRecord)
    ]
    assert len(published) > 1
    assert {tuple(sorted(resources)) for resources in published} == {("main_llm", "prompt")}
    assert {json.loads(resources["prompt"])["template"] for resources in published} == {"Say {task}."}
