"""Fine-tuning on what agents did: what is chosen, what is learned, and that a restart makes the same weights."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import ServiceUnavailableError, SettingsError, TrainingError
from lightstream.schemas.packing import unpack_int32
from lightstream.schemas.records import Trajectory, TripletRecord
from lightstream.trainers import SFT, Trainer, make_tiny_model
from lightstream.trainers.algorithms.recorded import recorded_context, write_recording
from lightstream.trainers.algorithms.replaying import replay_training
from lightstream.trainers.algorithms.sft.sequences import Choice, conversations, rows_of
from lightstream.trainers.engines.verl.engine import VerlEngine
from lightstream.trainers.ledger import MemoryLedger
from lightstream.trainers.rollouts.batch import build_arrays
from tests.support.checkpoints import checkpoint_in

from .support.trajectories import make_trajectory, make_triplet, random_trajectory

DIGITS, SAMPLES = 8, 4


@cache
def tokenizer_of(model: Path) -> Any:
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(model)
    return tokenizer


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("sft") / "model")


def prompt_of(model: Path, digit: int) -> list[int]:
    asked = [{"role": "user", "content": f"say {digit}"}]
    return list(
        tokenizer_of(model).apply_chat_template(asked, add_generation_prompt=True, return_dict=True)["input_ids"]
    )


def answers(model: Path) -> list[Trajectory]:
    """Of each digit several answers, one of them right; no log-probabilities, which nobody needs here."""
    made: list[Trajectory] = []
    for digit in range(DIGITS):
        for sample in range(SAMPLES):
            said = (digit + sample) % DIGITS
            response = [
                *tokenizer_of(model).encode(str(said), add_special_tokens=False),
                tokenizer_of(model).eos_token_id,
            ]
            triplet = make_triplet(prompt_of(model, digit), response).model_copy(update={"response_logprobs": None})
            made.append(
                make_trajectory(
                    f"g{digit}-{sample}", group_id=f"g{digit}", reward=float(sample == 0), triplets=[triplet]
                )
            )
    return made


class Run:
    """A run on a recording, each ``train`` of which is a process of its own."""

    def __init__(self, folder: Path, model: Path, trajectories: Sequence[Trajectory], **options: Any) -> None:
        self.folder = folder
        self.ledger = MemoryLedger(trainer_id="run", run_id="run")
        write_recording(trajectories, folder / "recording.jsonl")
        base = {"model": model, "recording": folder / "recording.jsonl", "device": "cpu", "threads": 1}
        self.options: dict[str, Any] = (
            base | {"learning_rate": 3e-3, "weight_decay": 0.0, "sequences_per_step": 3} | options
        )

    def train(self, **options: Any) -> bytes:
        algorithm = SFT(**self.options | options)
        context = recorded_context(
            [],
            settings=Settings.load(data_dir=self.folder),
            ledger=self.ledger,
            history=self.ledger.open(),
            run_id="run",
            made_with=algorithm.made_with(),
        )
        algorithm.run(context)
        return (self.published / "model.safetensors").read_bytes()

    @property
    def published(self) -> Path:
        return checkpoint_in(self.folder, self.ledger.resources[-1].checkpoint_url)


def right(folder: Path, model: Path) -> float:
    """The share of digits that the model says when it is asked for them (greedy): pass@1 without chance."""
    import torch
    from transformers import AutoModelForCausalLM

    loaded: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    hits = 0
    for digit in range(DIGITS):
        with torch.no_grad():
            logits = loaded(torch.tensor([prompt_of(model, digit)])).logits[0, -1]
        hits += tokenizer_of(model).decode([int(logits.argmax())]) == str(digit)
    return hits / DIGITS


@pytest.mark.parametrize("chosen", [{"best_of": 1}, {"reward_min": 0.5}], ids=["best", "good"])
def test_it_says_what_was_right(tmp_path: Path, model: Path, chosen: dict[str, Any]) -> None:
    run = Run(tmp_path, model, answers(model), epochs=60, **chosen | {"sequences_per_step": 8})
    run.train()
    assert right(run.published, model) >= right(model, model) + 0.3
    losses = [step.metrics["sft/loss"] for step in run.ledger.steps]
    assert losses[-1] < losses[0] / 4
    assert [record.version for record in run.ledger.resources] == [0, 1]
    assert run.ledger.steps[0].made_with["sequences"].startswith(f"{DIGITS} sequences (")


def test_an_adapter_learns_and_is_served_merged(tmp_path: Path, model: Path) -> None:
    options = {"lora_rank": 8, "learning_rate": 1e-2, "sequences_per_step": 8}
    run = Run(tmp_path, model, answers(model), epochs=20, best_of=1, **options)
    run.train()
    losses = [step.metrics["sft/loss"] for step in run.ledger.steps]
    assert losses[-1] < losses[0] - 0.5
    assert {file.name for file in run.published.iterdir()} == {file.name for file in model.iterdir()}


def test_every_sampled_token_is_learned_and_no_other() -> None:
    trajectories = [
        random_trajectory(f"g-{i}", group_id="g", group_size=9, run_id="run", policy_version=0) for i in range(9)
    ]
    arrays = build_arrays(rows_of(trajectories, Choice()))
    calls: list[TripletRecord] = [triplet for t in trajectories for triplet in t.triplets]
    assert arrays.response_mask.sum() == sum(len(unpack_int32(call.response_token_ids)) for call in calls)
    assert sorted(arrays.response_ids[arrays.response_mask == 1].tolist()) == sorted(
        token for call in calls for token in unpack_int32(call.response_token_ids)
    )
    assert set(arrays.advantages[arrays.response_mask == 1].tolist()) == {1.0}


def test_the_loss_is_verls(tmp_path: Path, model: Path) -> None:
    import torch
    import verl.utils.tensordict_utils as tensordict_utils
    from verl.workers.utils import losses

    rows = rows_of(
        [random_trajectory(f"g-{i}", group_id="g", group_size=9, run_id="r", policy_version=0) for i in range(9)],
        Choice(),
    )
    arrays = build_arrays(rows)
    engine = VerlEngine(SFT(model=model, device="cpu", threads=1, tokens_per_micro_batch=64), model)
    verls: list[float] = []
    untyped: Any = losses
    ours: Any = engine.models.loss  # verl's loss is put beside it

    def both(model_output: Any, data: Any, dp_group: Any = None) -> Any:
        loss = ours(model_output, data, dp_group)
        masks = [
            torch.cat([torch.zeros(len(prompt), dtype=torch.long), mask])
            for prompt, mask in zip(data["prompts"].unbind(), data["response_mask"].unbind(), strict=True)
        ]
        copy = data.clone(recurse=False)
        copy["loss_mask"] = torch.nested.as_nested_tensor(masks, layout=torch.jagged)
        tensordict_utils.assign_non_tensor(copy, dp_size=1, batch_num_tokens=int(arrays.response_mask.sum()))
        verls.append(float(untyped.sft_loss(None, model_output, copy)[0].detach()))
        return loss

    engine.models.actor.worker.set_loss_fn(both)
    metrics = engine.update(arrays, policy_version=-2)
    assert len(verls) > 1, "several micro-batches"
    assert metrics["actor/pg_loss"] == pytest.approx(sum(verls), rel=1e-5)


@pytest.mark.parametrize("every", [1, 4, 100])
def test_a_run_in_pieces_has_the_weights_of_one_in_one_go(tmp_path: Path, model: Path, every: int) -> None:
    whole = Run(tmp_path / "whole", model, answers(model), epochs=2).train()
    run = Run(tmp_path / "pieces", model, answers(model), epochs=2, checkpoint_every=every)

    class StoppedError(Exception):
        """The process ends here."""

    def stop_at(step: int) -> None:
        ledger: Any = run.ledger
        commit = ledger.commit

        def until(record: Any) -> None:
            commit(record)
            if record.step.step == step:
                ledger.commit = commit
                raise StoppedError

        ledger.commit = until

    for step in (1, 5, 6, 14):
        stop_at(step)
        with pytest.raises(StoppedError):
            run.train()
    assert run.train() == whole
    assert [record.step for record in run.ledger.steps] == list(range(1, 23))


def test_weights_are_published_on_the_way(tmp_path: Path, model: Path) -> None:
    run = Run(tmp_path, model, answers(model), publish_every=4)
    run.train()
    assert [(s.step, s.resources_id) for s in run.ledger.steps if s.resources_id] == [
        (4, "run-v1"),
        (8, "run-v2"),
        (11, "run-v3"),
    ]


def test_other_sequences_than_it_was_begun_with_are_refused(tmp_path: Path, model: Path) -> None:
    run = Run(tmp_path, model, answers(model))
    run.train()
    with pytest.raises(TrainingError, match=r"begun with 32 sequences .*, and there are 8 sequences"):
        run.train(reward_min=1.0)


def test_an_empty_choice_says_what_there_was(tmp_path: Path, model: Path) -> None:
    run = Run(tmp_path, model, answers(model))
    with pytest.raises(TrainingError, match="32 trajectories, 0 of them chosen"):
        run.train(reward_min=2.0)
    with pytest.raises(TrainingError, match=r"32 of them chosen; of their calls, left out: too_long 32"):
        run.train(response_tokens_max=1)
    assert not run.ledger.steps
    assert not run.ledger.resources


def test_the_best_of_a_group_are_chosen_in_order() -> None:
    rewards = [0.5, None, 1.0, 1.0, 0.0]
    made = [make_trajectory(f"g-{i}", group_id="g", reward=reward) for i, reward in enumerate(rewards)]
    made += [made[0].model_copy(update={"revision": 1, "reward": 2.0})]
    assert [t.rollout_id for t in Choice(best_of=2).of(made)] == ["g-0", "g-2"]
    assert [t.rollout_id for t in Choice(best_of=9).of(made)] == [f"g-{i}" for i in range(5)]
    assert [t.rollout_id for t in Choice(reward_min=1.0).of(made)] == ["g-0", "g-2", "g-3"]


def test_conversations_are_learned_as_they_would_be_sampled(tmp_path: Path, model: Path) -> None:
    tokenizer = tokenizer_of(model)
    messages = [
        {"role": "user", "content": "two?"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "and three?"},
        {"role": "assistant", "content": "3"},
    ]
    file = tmp_path / "chat.jsonl"
    file.write_text(json.dumps({"messages": messages, "reward": 1.0}) + "\n\n", "utf-8")
    (told,) = conversations(file, tokenizer)
    assert told.reward == 1.0
    whole = tokenizer.apply_chat_template(messages, tokenize=False)
    arrays = build_arrays(rows_of([told], Choice()))
    assert tokenizer.decode(arrays.input_ids.tolist()) == whole, "one sequence"
    learned = tokenizer.decode(arrays.response_ids[arrays.response_mask == 1].tolist(), skip_special_tokens=True)
    assert learned.replace("\n", "") == "23"
    run = Run(tmp_path / "run", model, [], messages=file, recording=None)
    run.train()
    assert len(run.ledger.steps) == 1


@pytest.mark.parametrize("line", ["{", "[]", '{"messages": 3}', '{"messages": [{"content": "a"}]}', '{"message": []}'])
def test_a_line_that_is_no_conversation_is_named(tmp_path: Path, model: Path, line: str) -> None:
    file = tmp_path / "chat.jsonl"
    file.write_text(f'{{"messages": []}}\n{line}\n', "utf-8")
    with pytest.raises(TrainingError, match=r"line 2 of .* is no conversation"):
        conversations(file, tokenizer_of(model))
    with pytest.raises(TrainingError, match="cannot be read"):
        conversations(tmp_path / "missing.jsonl", tokenizer_of(model))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"steps_ahead": 2, "kl_loss_coefficient": 0.1}, "SFT has no steps_ahead, kl_loss_coefficient"),
        ({"advantage": "rloo"}, "SFT has no advantage"),
        ({"config": {}}, "SFT has no config"),
        ({"best_of": 0}, "best_of 0"),
        ({"recording": "a", "messages": "b"}, "it learns from one of them"),
        ({"steps": 3}, "steps are 3, and its epochs 1"),
    ],
)
def test_options_of_rollouts_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(SettingsError, match=problem):
        SFT(model="m", **options)


def test_a_trainer_runs_it_without_tasks_and_its_steps_are_not_replayed_as_verls(
    settings: Settings, tmp_path: Path, model: Path
) -> None:
    settings = settings.model_copy(update={"proxy_url": "http://127.0.0.1:9"})  # nobody is asked
    write_recording(answers(model), tmp_path / "recording.jsonl")
    sft = SFT(model=model, recording=tmp_path / "recording.jsonl", reward_min=1.0, device="cpu", threads=1)
    Trainer(algorithm=sft, n_runners=0, settings=settings, trainer_id="imitate").fit(None, [])
    with pytest.raises(TrainingError, match="made by SFT, whose steps do not follow from the log alone"):
        replay_training(settings, "imitate", tmp_path / "replayed")


def test_without_a_proxy_it_is_refused_before_anything_is_loaded(settings: Settings, tmp_path: Path) -> None:
    """Its weights are published with the address at which they are served."""
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}", "utf-8")
    with pytest.raises(ServiceUnavailableError, match="no LLM proxy runs with the data folder"):
        SFT(model=model, recording=tmp_path / "recording.jsonl").check(settings)
