"""Options of the demonstration."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

__all__ = [
    "GIVEN_MODEL_LEARNING_RATE",
    "GIVEN_MODEL_MAX_TOKENS",
    "GIVEN_MODEL_STEPS",
    "LAST_STEPS",
    "REWARD_TARGET",
    "RUN_ID",
    "Options",
]

RUN_ID = "demo"

GIVEN_MODEL_LEARNING_RATE = 1e-6
"""Learning rate of models of a billion parameters; the tiny one takes 500 times as much."""

GIVEN_MODEL_MAX_TOKENS = 4
"""A model of words may begin with a space or a quotation mark before it names the tool."""

GIVEN_MODEL_STEPS = 72

LAST_STEPS = 5
REWARD_TARGET = 0.95
"""Mean reward of the last five steps that ends the training of the tiny model."""


@dataclass(frozen=True)
class Options:
    """Size of the run. The defaults learn in minutes on two cores.

    Attributes:
        steps: at most; training ends once the last five hold a mean reward of ``reward_target``, which takes 40 to 60.
        model: of a user's own: a folder or name to train, or the name at the endpoint; empty makes a tiny one.
        endpoint: of a server that is only asked, never trained; empty trains.
    """

    steps: int = 160
    groups: int = 16
    samples: int = 8
    model: str = ""
    endpoint: str = ""
    learning_rate: float = 5e-4
    max_tokens: int = 1
    seed: int = 0

    @property
    def instructed(self) -> bool:
        """Whether prompts say what to do. The tiny model would not understand it."""
        return bool(self.model or self.endpoint)

    def with_model(self, model: str) -> Options:
        """The same with the model as it was found."""
        return replace(self, model=model)

    def to_json(self) -> str:
        """For the trainer's command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Options:
        """Inverse of :meth:`to_json`."""
        return cls(**json.loads(text))
