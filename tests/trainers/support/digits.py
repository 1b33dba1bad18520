"""The digit task, sampled in this process: "say d" is answered the better the more tokens are digits."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from lightstream.trainers.rollouts.groups import Group

from .trajectories import make_trajectory, make_triplet

GROUP_SIZE = 8
RESPONSE_TOKENS = 2


class DigitTask:
    """Samples from a Hugging Face model with the weights of a checkpoint folder, temperature 1."""

    def __init__(self, folder: Path, *, seed: int = 0) -> None:
        from transformers import AutoTokenizer

        load: Any = AutoTokenizer.from_pretrained
        self.tokenizer = load(folder)
        self._chance = random.Random(seed)
        self._answers = {self.tokenizer.encode(str(d))[0] for d in range(10)}

    def prompt(self, digit: int) -> list[int]:
        ids: list[int] = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": f"say {digit}"}],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=False,
        )
        return ids

    def roll_out(self, folder: Path, *, step: int, groups: int = 4) -> list[Group]:
        """One step's groups, sampled by the policy in ``folder``, version ``step`` - 1."""
        import torch
        from transformers import AutoModelForCausalLM

        model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        made: list[Group] = []
        for g in range(groups):
            prompt = self.prompt(self._chance.randrange(10))
            ids = torch.tensor([prompt] * GROUP_SIZE)
            logprobs: list[Any] = []
            with torch.no_grad():
                for _ in range(RESPONSE_TOKENS):
                    distribution = torch.log_softmax(model(input_ids=ids).logits[:, -1].float(), -1)
                    sampled = torch.multinomial(distribution.exp(), 1)
                    logprobs.append(distribution.gather(-1, sampled))
                    ids = torch.cat([ids, sampled], 1)
            responses = ids[:, len(prompt) :].tolist()
            said = torch.cat(logprobs, 1).tolist()
            trajectories = []
            for i, (response, logprob) in enumerate(zip(responses, said, strict=True)):
                reward = sum(token in self._answers for token in response) / RESPONSE_TOKENS
                triplet = make_triplet(prompt, response, logprob, reward=reward, policy_version=step - 1)
                trajectories.append(make_trajectory(f"s{step}-g{g}-{i}", reward=reward, triplets=[triplet]))
            made.append(Group(f"s{step}-g{g}", tuple(trajectories)))
        return made
