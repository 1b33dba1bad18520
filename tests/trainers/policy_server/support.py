"""What the policy server's tests share: a model of reference, and engines without HTTP."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from lightstream.trainers.run.model.tiny_model import make_tiny_model
from lightstream.trainers.servers.chat_api.generation import Generation, Job
from lightstream.trainers.servers.cpu.checkpoint import load_model, load_tokenizer
from lightstream.trainers.servers.cpu.engine import Engine
from lightstream.trainers.servers.cpu.policy_version import PolicyVersion, Versions

CPU = torch.device("cpu")


def new_versions(kept: int = 3) -> Versions:
    return Versions(CPU, torch.float32, kept)


@cache
def _reference(folder: Path) -> Any:
    return load_model(folder, CPU, torch.float32)


@torch.inference_mode()
def reference_logprobs(folder: Path, prompt: Sequence[int], response: Sequence[int], temperature: float = 1.0) -> Any:
    """Log-probabilities of ``response`` by one plain forward pass over prompt and response: float32 (n,)."""
    logits = _reference_logits(folder, prompt, response)
    return torch.log_softmax(logits / temperature, -1).gather(-1, torch.tensor(response)[:, None])[:, 0]


@torch.inference_mode()
def best_logprobs(folder: Path, prompt: Sequence[int], response: Sequence[int]) -> Any:
    """The highest log-probability of any token in each place of ``response``, by the same pass: float32 (n,)."""
    return torch.log_softmax(_reference_logits(folder, prompt, response), -1).amax(-1)


def _reference_logits(folder: Path, prompt: Sequence[int], response: Sequence[int]) -> Any:
    ids = torch.tensor([[*prompt, *response]])
    return _reference(folder)(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1].float()


class EngineRun:
    """An engine, and a way to wait for what it does.

    Attributes:
        most_running: sequences under way at once, the most that it had when it told of news.
    """

    def __init__(self, *, rows_max: int = 64, window_s: float = 0.0) -> None:
        self.most_running = 0
        self._news = threading.Condition()
        self.engine = Engine(rows_max=rows_max, window_s=window_s, threads=1, on_news=self._on_news)

    def _on_news(self, _jobs: list[Job]) -> None:
        with self._news:
            self.most_running = max(self.most_running, self.engine.running)
            self._news.notify_all()

    def job(
        self,
        version: PolicyVersion,
        prompt: list[int],
        tokens_max: int,
        *,
        seed: int = 0,
        temperature: float = 1.0,
        streams: bool = False,
    ) -> Job:
        """A job of one choice, not yet submitted."""
        job = Job(version, streams, asyncio.Event())
        job.generations.append(
            Generation(
                job=job,
                prompt_ids=prompt,
                tokens_max=tokens_max,
                temperature=temperature,
                top_p=1.0,
                top_logprobs=0,
                chance=random.Random(seed),
                stop_watcher=None,
            )
        )
        return job

    def wait(self, *jobs: Job, timeout_s: float = 60.0) -> None:
        """Until all of them are over."""
        with self._news:
            assert self._news.wait_for(lambda: all(job.reported for job in jobs), timeout_s), "the engine is not done"

    def wait_for_tokens(self, job: Job, count: int, timeout_s: float = 60.0) -> None:
        """Until a streaming job has that many tokens."""
        with self._news:
            assert self._news.wait_for(lambda: job.generations[0].ready >= count, timeout_s), "too few tokens"


def talkative_model(folder: Path, *, seed: int) -> Path:
    """A tiny model that says printable ASCII alone, and never ends its turn."""
    make_tiny_model(folder, seed=seed)
    weights = load_file(folder / "model.safetensors")
    symbols = load_tokenizer(folder).get_vocab()
    said = [token for symbol, token in symbols.items() if len(symbol) == 1 and "!" <= symbol <= "~"]
    weights["model.embed_tokens.weight"][:, 0] = 0.1  # a constant among what the last layer sees, for a bias to work on
    weights["lm_head.weight"][:, 0] = -5.0
    weights["lm_head.weight"][said, 0] = 0.0
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def sampled_tokens(folders: Sequence[Path], prompt: Sequence[int], response: Sequence[int], draws: Any) -> list[int]:
    """The token that each place's weights (``folders``, one for each place) give with its draw, after those before."""
    tokens: list[int] = []
    logits = {folder: _reference_logits(folder, prompt, response) for folder in dict.fromkeys(folders)}
    for place, (folder, draw) in enumerate(zip(folders, draws, strict=True)):
        probabilities = torch.softmax(logits[folder][place].double(), -1)
        tokens.append(int((probabilities.cumsum(-1) <= draw * probabilities.sum()).sum()))
    return tokens
