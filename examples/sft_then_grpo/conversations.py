"""Conversations that were written down: somebody asks for a thing, and is told a drawer, often the wrong one."""

from __future__ import annotations

import json
import random
from pathlib import Path

from examples.drawers import DRAWER_OF, DRAWERS, TASKS, question_of

__all__ = ["write_conversations"]

RIGHT = 0.7
"""Share of the conversations whose answer is right. Who imitates them all is right as often."""


def write_conversations(file: Path, count: int, seed: int) -> Path:
    """Write so many conversations, in OpenAI's fine-tuning format, a line each."""
    chance = random.Random(seed)
    lines: list[str] = []
    for number in range(count):
        task = TASKS[number % len(TASKS)]
        right = DRAWER_OF[task["thing"]]
        said = right if chance.random() < RIGHT else chance.choice([d for d in DRAWERS if d != right])
        messages = [{"role": "user", "content": question_of(task)}, {"role": "assistant", "content": said}]
        lines.append(json.dumps({"messages": messages}))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return file
