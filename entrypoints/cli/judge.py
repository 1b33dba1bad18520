"""``lightstream judge``: a model scores rollouts."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError, StoreError

from .load import needs
from .view_query import PATIENCE_S

ANSWERS_FILE = "judge-answers.sqlite"
SHOWN_MAX = 20

console = Console(highlight=False)


def judge(
    model: Annotated[str, typer.Option(help="The model that judges.", show_default=False)],
    base_url: Annotated[
        str, typer.Option(envvar="OPENAI_BASE_URL", help="Its server, with /v1; any that is OpenAI-compatible.")
    ] = "https://api.openai.com/v1",
    rubric: Annotated[
        str | None, typer.Option(help="What counts, in words; @FILE reads it from a file.", show_default=False)
    ] = None,
    relative: Annotated[
        bool, typer.Option("--relative", help="Compare the rollouts of each group with each other.")
    ] = False,
    run: Annotated[str | None, typer.Option(help="Only this run.", show_default="all")] = None,
    mode: Annotated[str | None, typer.Option(help="Only train, val or test.", show_default="all")] = None,
    name: Annotated[str, typer.Option(help="Name of the reward.")] = "judge",
    once: Annotated[bool, typer.Option("--once", help="End once all that has ended is judged.")] = False,
    at_once: Annotated[int, typer.Option(min=1, max=64, help="Questions under way.")] = 4,
    per_minute: Annotated[
        float | None, typer.Option(min=0.01, help="Questions a minute.", show_default="no bound")
    ] = None,
    tokens_max: Annotated[
        int | None, typer.Option(min=1, help="Tokens to spend; then it ends with 1.", show_default="no bound")
    ] = None,
) -> None:
    """Let a model score rollouts that have ended: each score is a reward (docs/judges.md). Its key: OPENAI_API_KEY."""
    settings = Settings.load()
    with needs("view"):
        from lightstream.store_views.client import ViewClient
        from lightstream.store_views.judges import DEFAULT_RUBRIC, JudgeModel, Judging, Rubric
        from lightstream.store_views.judges.model import StoppedError
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    text = DEFAULT_RUBRIC if rubric is None else _text(rubric)
    judge_model = JudgeModel(
        model,
        base_url,
        os.environ.get("OPENAI_API_KEY", ""),
        settings.data_dir / ANSWERS_FILE,
        per_minute=per_minute,
        tokens_max=tokens_max,
        stopping=stopping,
    )
    client = ViewClient(settings, patience_s=PATIENCE_S)
    judging = Judging(
        client,
        judge_model,
        Rubric(text, relative=relative),
        name=name,
        run_id=run,
        mode=mode,
        at_once=at_once,
        stopping=stopping,
        on_judged=lambda verdicts: console.print(f"{len(verdicts):,} rollouts have a score {name!r}", soft_wrap=True),
    )
    try:
        judging.run(once=once)
    except StoppedError:
        pass  # it was asked to end while it waited for the judge
    finally:
        report = judging.report
        cost = f"{judge_model.questions:,} questions, {judge_model.tokens:,} tokens"
        counts = f"{report.judged:,} rollouts judged with {cost}."
        console.print(counts, soft_wrap=True)
        client.close()
        judge_model.close()
    if report.unreadable:
        lines = [f"{rollout}: {why}" for rollout, why in list(report.unreadable.items())[:SHOWN_MAX]]
        raise StoreError(
            f"{len(report.unreadable):,} rollouts have no verdict.\n" + escape("\n".join(lines)),
            next_step="They have no score; start the judge again, or score them by hand: `lightstream score`.",
        )


def _text(rubric: str) -> str:
    if not rubric.startswith("@"):
        return rubric
    try:
        return Path(rubric[1:]).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"the rubric {rubric[1:]} cannot be read: {error}.") from error
