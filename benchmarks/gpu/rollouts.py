"""Rollouts without Kafka: models made on the spot, answers sampled by the policy server's engine, and a recording."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import torch

from lightstream.schemas.packing import pack_float32, pack_int32
from lightstream.schemas.records import AttemptStatus, RolloutMode, RolloutStatus, Trajectory, TripletRecord
from lightstream.trainers import VERL, make_tiny_model, train_recorded
from lightstream.trainers.algorithms.recorded import write_recording
from lightstream.trainers.servers.chat_api.generation import Generation, Job
from lightstream.trainers.servers.cpu.engine import Engine
from lightstream.trainers.servers.cpu.policy_version import PolicyVersion

Device: TypeAlias = Literal["cpu", "cuda"]

RECORDED: dict[str, Any] = {
    "steps": 4,
    "tasks_per_step": 4,
    "rollouts_per_task": 8,
    "learning_rate": 1e-3,
    "mini_batches_per_step": 2,
    "threads": 1,
}
"""Options of the recorded run."""

RUN = "recorded"


class Sampler:
    """The policy server's engine without its HTTP.

    Args:
        rows_max: most sequences at once.
    """

    def __init__(self, rows_max: int) -> None:
        self._over = threading.Condition()
        self._left = 0
        self._engine = Engine(rows_max=rows_max, window_s=0.0, threads=1, on_news=self._count)
        self._engine.start()

    def sample(self, model: Any, prompts: Sequence[Sequence[int]], tokens: int, *, seed: int = 0) -> list[Generation]:
        """One answer for each prompt, of exactly so many tokens, at temperature 1."""
        version = PolicyVersion("policy@0", 0, "", model=model, positions_max=1 << 20)
        jobs: list[Job] = []
        for number, prompt in enumerate(prompts):
            job = Job(version, streams=False, news=asyncio.Event())
            chance = random.Random(f"{seed}-{number}")
            job.generations.append(Generation(job, list(prompt), tokens, 1.0, 1.0, 0, chance, None))
            jobs.append(job)
        with self._over:
            self._left = len(jobs)
            for job in jobs:
                self._engine.submit(job)
            self._over.wait_for(lambda: self._left <= 0)
        made = [job.generations[0] for job in jobs]
        for one in made:
            assert one.error is None, one.error
        return made

    def close(self) -> None:
        """End the engine's thread."""
        self._engine.stop()

    def _count(self, jobs: list[Job]) -> None:
        with self._over:
            self._left -= sum(job.is_over for job in jobs)
            self._over.notify()


def make_model(folder: Path, *, seed: int = 0, **sizes: int | float) -> Path:
    """Qwen2.5-0.5B's architecture with random weights.

    Args:
        folder: made; has the tiny model's tokenizer, whose tokens are the first 259.
        sizes: replace fields of its ``Qwen2Config``.
    """
    from transformers import Qwen2Config, Qwen2ForCausalLM

    make_tiny_model(folder)  # for its tokenizer
    fields: dict[str, Any] = {
        "vocab_size": 151_936,
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "max_position_embeddings": 32_768,
        "tie_word_embeddings": True,
        "initializer_range": 0.02,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }
    new_model: Any = Qwen2ForCausalLM  # transformers has no types here
    new_config: Any = Qwen2Config
    torch.manual_seed(seed)
    new_model(new_config(**(fields | sizes))).save_pretrained(folder)
    return folder


def trajectory_of(
    name: str,
    group: str,
    size: int,
    reward: float,
    prompt: Sequence[int],
    response: Sequence[int],
    logprobs: Sequence[float],
    *,
    version: int,
) -> Trajectory:
    """A rollout of one call."""
    triplet = TripletRecord(
        call_index=0,
        span_id=f"{0:016x}",
        trace_id="0" * 32,
        policy_version=version,
        prompt_token_ids=pack_int32(prompt),
        response_token_ids=pack_int32(response),
        response_logprobs=pack_float32(logprobs),
        response_mask=b"\x01" * len(response),
        reward=reward,
    )
    return Trajectory(
        rollout_id=name,
        attempt_id=f"{name}-a1",
        attempt_sequence=1,
        revision=0,
        run_id=RUN,
        mode=RolloutMode.TRAIN,
        group_id=group,
        group_size=size,
        status=AttemptStatus.SUCCEEDED,
        rollout_status=RolloutStatus.SUCCEEDED,
        final=True,
        reward=reward,
        triplets=[triplet],
        call_count=1,
    )


def record(folder: Path) -> None:
    """Write a recording of random rollouts into ``folder``, and what a CPU makes of it: metrics of each step."""
    chance = np.random.default_rng(0)
    tasks, size = RECORDED["tasks_per_step"], RECORDED["rollouts_per_task"]
    made: list[Trajectory] = []
    for step in range(1, RECORDED["steps"] + 1):
        for group in (f"{RUN}-s{step}-g{task}" for task in range(tasks)):
            prompt = chance.integers(3, 259, chance.integers(5, 40)).tolist()
            for number in range(size):
                response = chance.integers(3, 259, chance.integers(1, 60)).tolist()
                logprobs = chance.normal(-5.5, 0.2, len(response)).tolist()
                reward = float(chance.integers(0, 2))
                name = f"{group}-{number}"
                made.append(trajectory_of(name, group, size, reward, prompt, response, logprobs, version=step - 1))
    folder.mkdir(parents=True, exist_ok=True)
    write_recording(made, folder / "recording.jsonl")
    make_tiny_model(folder / "model")
    expected = read_expected(folder, folder / "made-on-cpu", device="cpu")
    (folder / "expected.json").write_text(json.dumps(expected, indent=1), "utf-8")


def read_expected(folder: Path, into: Path, *, device: Device) -> list[dict[str, float]]:
    """Train on the recording of ``folder``; returns the loss and the norm of the gradient of each step."""
    steps: list[dict[str, float]] = []
    algorithm = VERL(model=folder / "model", device=device, **RECORDED)
    train_recorded(
        algorithm,
        folder / "recording.jsonl",
        into,
        observers=[
            lambda report: steps.append({name: report.metrics[name] for name in ("actor/pg_loss", "grad_norm")})
        ],
    )
    return steps


def timed(action: Callable[[], object]) -> float:
    """Seconds of an action, the GPU's work included."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    began_s = time.perf_counter()
    action()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - began_s
