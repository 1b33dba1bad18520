"""What the demonstration can be told."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

__all__ = ["RUN_ID", "Options"]

RUN_ID = "demo"


@dataclass(frozen=True)
class Options:
    """Size of the run. The defaults learn in minutes on two cores."""

    steps: int = 56
    groups: int = 16
    samples: int = 8
    model: str = ""
    learning_rate: float = 5e-4
    max_tokens: int = 1
    seed: int = 0

    def to_json(self) -> str:
        """For the trainer's command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Options:
        """Inverse of :meth:`to_json`."""
        return cls(**json.loads(text))
