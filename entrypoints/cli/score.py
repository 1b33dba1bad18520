"""``lightstream score``: people's scores, one or a file of them, as rewards."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import QueryError, SettingsError, StoreError

from .load import needs
from .user import by_command_line
from .view_query import PATIENCE_S

SCORES_PER_REQUEST = 500
ERRORS_SHOWN_MAX = 20

console = Console(highlight=False)
notes = Console(highlight=False, stderr=True)

EFFECTS: Mapping[str, str] = {
    "trajectory": "its attempt still runs, so its trajectory will have the score",
    "revision": "a revision of its trajectory has the score",
    "too_late": "its attempt began too long ago for a revision (LIGHTSTREAM_LATE_SPAN_S_MAX), so only a replay has the "
    "score",
}


def score(
    rollout_id: Annotated[str | None, typer.Argument(help="The rollout.", show_default=False)] = None,
    value: Annotated[str | None, typer.Argument(help="A number, up (1) or down (0).", show_default=False)] = None,
    name: Annotated[
        str, typer.Option(help="What is judged, such as helpfulness; the name of the reward.")
    ] = "feedback",
    comment: Annotated[str, typer.Option(help="Why.")] = "",
    call: Annotated[str | None, typer.Option(help="Span of the LLM call that is scored, instead of all.")] = None,
    key: Annotated[str | None, typer.Option(help="The same key for the same rollout is the same score.")] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", help="CSV, JSON or JSON lines of scores: rollout_id, score, name, comment, …"),
    ] = None,
) -> None:
    """Score a rollout by hand. The score becomes its reward, also for trainings that take revisions."""
    if file is not None:
        if rollout_id is not None:
            raise QueryError("there is a rollout and a file of them.", next_step="Give one or the other.")
        run_score(Settings.load(), [_by_user(one) for one in scores_in(file)])
        return
    if rollout_id is None or value is None:
        raise QueryError("a score needs a rollout and a value.", next_step="`lightstream score ROLLOUT 1`, or --file.")
    given = {"rollout_id": rollout_id, "score": _number(value), "name": name, "comment": comment}
    run_score(Settings.load(), [_by_user(given | {"span_id": call, "key": key})])


def _by_user(score: Any) -> Any:
    """A score that names its author; as it is, where it names one or is none."""
    return {"by": by_command_line()} | score if isinstance(score, dict) else score


def run_score(settings: Settings, scores: Sequence[Mapping[str, Any]]) -> None:
    """Send scores, and print their results. All that are right are kept, whatever is wrong with others.

    Args:
        scores: as ``POST /v1/feedback`` takes them.

    Raises:
        StoreError: some were refused, or are for nothing there is; they are named.
        SettingsError, ServiceUnavailableError: the view cannot be asked. What was sent before stays.
    """
    with needs("view"):
        from lightstream.store_views.client import ViewClient
    client = ViewClient(settings, patience_s=PATIENCE_S)
    written: list[dict[str, Any]] = []
    refused: list[str] = []
    try:
        for done in range(0, len(scores), SCORES_PER_REQUEST):
            batch = scores[done : done + SCORES_PER_REQUEST]
            for number, result in enumerate(client.feedback(batch), done + 1):
                if "error" in result:
                    problem = f"{result['error']['message']} {result['error']['next_step']}".strip()
                    refused.append(problem if len(scores) == 1 else f"score {number}: {problem}")
                else:
                    written += result.get("pair", [result])
            if done + len(batch) < len(scores):
                notes.print(f"sent {done + len(batch):,} of {len(scores):,} scores", soft_wrap=True)
    finally:
        client.close()
    new = [found for found in written if not found["repeated"]]
    if len(scores) > 1:
        console.print(f"{len(new):,} scores written, {len(written) - len(new):,} were there, {len(refused):,} refused.")
    for effect, meaning in EFFECTS.items():
        count = sum(found["effect"] == effect for found in new)
        if count:
            console.print(escape(f"{count:,} of them: {meaning}." if len(scores) > 1 else f"Scored: {meaning}."))
    if len(scores) == 1 and written and not new:
        console.print("This score was there already.")
    if refused:
        more = len(refused) - ERRORS_SHOWN_MAX
        rest = f"\n… and {more:,} more" if more > 0 else ""
        raise StoreError("\n".join(refused[:ERRORS_SHOWN_MAX]) + rest)


def scores_in(path: Path) -> list[dict[str, Any]]:
    """The scores of a CSV file with a head, a JSON list, or JSON lines; with the fields of ``POST /v1/feedback``.

    One without a key gets one of its content: a file that is sent twice counts once.

    Raises:
        SettingsError: the file cannot be read; names the line.
    """
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}.") from error
    rows = _csv_rows(path, text) if path.suffix.lower() in (".csv", ".tsv") else _json_rows(path, text)
    return [_with_key(row) for row in rows]


def _with_key(row: Any) -> Any:
    if not isinstance(row, dict) or row.get("key"):
        return row
    content = json.dumps(row, sort_keys=True, ensure_ascii=True)
    return row | {"key": hashlib.blake2b(content.encode(), digest_size=12).hexdigest()}


def _csv_rows(path: Path, text: str) -> Iterator[dict[str, Any]]:
    reader = csv.DictReader(
        io.StringIO(text, newline=""), delimiter="\t" if path.suffix.lower() == ".tsv" else ",", strict=True
    )
    try:
        for row in reader:
            if None in row or None in row.values():
                raise _mistake(path, reader.line_num, f"its columns differ from the head's, {reader.fieldnames}")
            filled = {name.strip(): value for name, value in row.items() if value != ""}
            yield filled | ({"score": _number(filled["score"])} if "score" in filled else {})
    except csv.Error as error:
        raise _mistake(path, reader.line_num, str(error)) from error


def _json_rows(path: Path, text: str) -> Iterator[Any]:
    if text.lstrip().startswith("["):
        try:
            yield from json.loads(text)
        except (ValueError, RecursionError) as error:
            raise SettingsError(f"{path}: {error}.") from error
        return
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                yield json.loads(line)
            except (ValueError, RecursionError) as error:
                raise _mistake(path, number, str(error)) from error


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text.strip()


def _mistake(path: Path, line: int, problem: str) -> SettingsError:
    return SettingsError(f"{path}, line {line}: {problem}.", next_step="Correct it and try again; nothing was sent.")
