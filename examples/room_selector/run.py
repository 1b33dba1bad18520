"""Start the system, search for a prompt, and show what was tried."""

from __future__ import annotations

import os
from pathlib import Path

from openai import AsyncOpenAI
from rich.console import Console
from rich.table import Table
from rich.text import Text

import lightstream.agl as agl
from examples.watch import LearningCurve, show_checks
from lightstream.runtime.http.server import HttpServer
from lightstream.trainers import LightningStore, Settings, ViewClient
from lightstream.up import Stack

from .agent import sample_tasks, select_room
from .scripted import CRITERIA, CRITIC, EDITOR, scripted_endpoint

__all__ = ["find_prompt", "run_room_selector"]

SEED_PROMPT = agl.PromptTemplate(template="Name the best of {rooms} rooms.", engine="f-string")
TRAIN_TASKS, VALIDATION_TASKS = 12, 12
SCORE_MIN = 0.95
PROMPTS = "SELECT prompt, parent, score, template FROM prompts WHERE score IS NOT NULL ORDER BY length(prompt), prompt"


def run_room_selector(settings: Settings, console: Console, *, rounds: int, seed: int) -> bool:
    """Run it all; returns whether the prompt that names every criterion was found.

    Raises:
        LightstreamError: a part of the system could not be started, or stopped answering.
    """
    console.print("Starting Kafka, the worker, the view and the scripted model …")
    server = HttpServer(scripted_endpoint(), settings, name="scripted")
    url = f"{server.start()}/v1"
    try:
        with Stack(settings, services=("worker", "view")) as stack:
            os.environ.update(stack.settings.to_environment() | {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "none"})
            best = find_prompt(None, rounds=rounds, seed=seed).template
            score = _show(stack.settings, console, settings.data_dir / "reward.png")
            console.print(f"The best prompt: {best}")
            checks = {
                f"it names {', '.join(CRITERIA)}": all(criterion in best for criterion in CRITERIA),
                f"its score is at least {SCORE_MIN}: {score:.3f}": score >= SCORE_MIN,
            }
            holds = show_checks(console, checks)
            console.print("Stopping …")
    finally:
        server.stop()
    return holds


def find_prompt(store: LightningStore | None, *, rounds: int, seed: int) -> agl.PromptTemplate:
    """The best prompt that the search finds, with its Runners in this process.

    Args:
        store: where rollouts are; ``None``: on Kafka.
        rounds: of the search.
        seed: of its chance, and of the tasks.
    """
    algorithm = agl.APO(
        AsyncOpenAI(),
        gradient_model=CRITIC,
        apply_edit_model=EDITOR,
        beam_width=2,
        branch_factor=2,
        beam_rounds=rounds,
        gradient_batch_size=2,
        val_batch_size=8,
        seed=seed,
    )
    trainer = agl.Trainer(
        algorithm=algorithm, n_runners=4, store=store, initial_resources={"prompt_template": SEED_PROMPT}
    )
    trainer.fit(select_room, sample_tasks(TRAIN_TASKS, seed), sample_tasks(VALIDATION_TASKS, seed + 1))
    return algorithm.get_best_prompt()


def _show(settings: Settings, console: Console, picture: Path) -> float:
    """Print the prompts that were measured, and draw their scores; returns the best one."""
    view = ViewClient(settings)
    rows = view.query(PROMPTS, at_least="now").rows
    view.close()
    table = Table(title="The prompts, and what they were made of", title_justify="left")
    for column in ("prompt", "parent", "score", "template"):
        table.add_column(column)
    for prompt, parent, score, template in rows:
        table.add_row(prompt, parent or "", f"{score:.2f}", template)
    console.print(table)
    scores = [float(row[2]) for row in rows]
    curve = LearningCurve(steps=list(range(1, len(rows) + 1)), rewards=scores, logprob_diffs_max=[])
    console.print(Text(curve.text()), no_wrap=True, crop=False)
    console.print(f"As a picture: {curve.save_png(picture, title='Room selector: score of each prompt')}")
    return max(scores)
