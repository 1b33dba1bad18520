"""``lightstream export …``: trajectories out of the view, into a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import typer
from rich.console import Console

from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError

from .load import needs
from .view_query import ask_view

app = typer.Typer(
    help="Write trajectories from the view to a file, which appears once it is complete.", no_args_is_help=True
)
_notes = Console(highlight=False, stderr=True)

Out = Annotated[Path, typer.Argument(help="Output file; replaced if it exists.")]
Where = Annotated[str, typer.Option(help="Which trajectories: a condition on the view `trajectories`, in SQL.")]
Level = Annotated[str, typer.Option(help="A row for each `call`, or for each merged `segment`.")]
TokensMax = Annotated[int | None, typer.Option(help="Longest merged segment, in tokens.", min=1)]
RewardMin = Annotated[float | None, typer.Option(help="Leave out calls with a smaller reward, or without one.")]

FINAL = "final"
"""The trajectories that groups count: one of each finished rollout."""


@app.command()
def parquet(out: Out, where: Where = FINAL, level: Level = "call", tokens_max: TokensMax = None) -> None:
    """Write token ids, log-probabilities, masks and rewards as Parquet."""
    with needs("view"):
        from lightstream.store_views.exports import write_parquet
    _say(write_parquet(_trajectories(where), out, cast("Literal['call', 'segment']", level), tokens_max), "rows", out)


@app.command()
def arrow(out: Out, where: Where = FINAL, level: Level = "call", tokens_max: TokensMax = None) -> None:
    """Write the same as an Arrow IPC file."""
    with needs("view"):
        from lightstream.store_views.exports import write_arrow
    _say(write_arrow(_trajectories(where), out, cast("Literal['call', 'segment']", level), tokens_max), "rows", out)


@app.command()
def chat(out: Out, where: Where = FINAL, level: Level = "segment", reward_min: RewardMin = None) -> None:
    """Write conversations to fine-tune on, as JSON lines in OpenAI's format, with tools."""
    if level not in ("call", "segment"):
        raise SettingsError(f"--level {level} is neither call nor segment.")
    with needs("view"):
        from lightstream.store_views.exports import chat_lines
    chosen: Literal["call", "segment"] = "call" if level == "call" else "segment"
    left_out: Counter[str] = Counter()
    lines = chat_lines(_ask(), _trajectories(where), chosen, reward_min, left_out)
    _write_lines(lines, "conversations", out, left_out)


@app.command()
def atif(out: Out, where: Where = FINAL) -> None:
    """Write Harbor's Agent Trajectory Interchange Format, one document per line."""
    with needs("view"):
        from lightstream.store_views.exports import conversations_of, to_atif
    ask, left_out = _ask(), Counter[str]()

    def documents() -> Iterator[Any]:
        for trajectory in _trajectories(where):
            texts = conversations_of(ask, trajectory)
            left_out.update(
                f"the text of a call: {t.conversation.incomplete}" for t in texts if t.conversation.incomplete
            )
            left_out.update(f"{kind}, of a call" for t in texts for kind in t.conversation.left_out)
            yield to_atif(trajectory, texts)

    _write_lines(documents(), "documents", out, left_out)


@app.command()
def torch(out: Out, where: Where = FINAL) -> None:
    """Write a batch of torch tensors (`torch.load`) of the calls that can be trained on."""
    with needs("train", "view"):
        from lightstream.trainers.engines.exports import save_torch_batch

        rows, excluded = save_torch_batch(_trajectories(where), out)  # imports torch only here
    _say(rows, "sequences", out)
    for reason, count in sorted(excluded.items()):
        _notes.print(f"  left out: {count:,} {reason}")


@app.command()
def recording(out: Out, where: Where = FINAL) -> None:
    """Write whole trajectories as JSON lines, to train on without Kafka (`lightstream.trainers.train_recorded`)."""
    with needs("train", "view"):
        from lightstream.trainers.algorithms.recorded import write_recording
    _say(write_recording(_trajectories(where), out), "trajectories", out)


def _ask() -> Callable[[str], Any]:
    return partial(ask_view, Settings.load())


def _trajectories(where: str) -> Iterator[Any]:
    with needs("view"):
        from lightstream.store_views.exports import read_trajectories
    return read_trajectories(_ask(), where)


def _write_lines(values: Iterator[Any], what: str, out: Path, left_out: Counter[str]) -> None:
    with needs("view"):
        from lightstream.store_views.exports import write_json_lines
    _say(write_json_lines(values, out), what, out)
    for kind, count in sorted(left_out.items()):
        _notes.print(f"  left out: {count:,} × {kind}", markup=False, soft_wrap=True)


def _say(count: int, what: str, out: Path) -> None:
    _notes.print(f"{count:,} {what} in {out}.", soft_wrap=True)
