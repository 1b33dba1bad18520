"""``lightstream blame``: the training rollouts that taught an answer."""

from __future__ import annotations

import json
import sys

from rich.console import Console

from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import NotFoundError
from lightstream.store_views.sql_literal import sql_literal

from .formats import Format
from .rows import console_for_rows, print_rows
from .view_query import ask_view

console = Console(highlight=False)

_CALL = "SELECT span_id, choice_index, run_id, policy_version FROM llm_calls WHERE {} ORDER BY call_index DESC LIMIT 1"


def run_blame(settings: Settings, answer: str, limit: int, output: Format) -> None:
    """Print the trained calls that did most for an answer, or against it.

    Args:
        answer: span or response id of the call, or a rollout, of which its last call is meant.

    Raises:
        NotFoundError: there is no such call with token ids.
        QueryError, ServiceUnavailableError: the view could not answer.
    """
    literal = sql_literal(answer)
    named = f"span_id = {literal} OR response_id = {literal} OR rollout_id = {literal}"
    calls = ask_view(settings, _CALL.format(f"({named}) AND response_token_ids IS NOT NULL"))["rows"]
    if not calls:
        raise NotFoundError(
            f"there is no call {answer!r:.200} with token ids.",
            next_step="`lightstream sql 'FROM llm_calls'` lists the calls.",
        )
    span, choice, run, version = calls[0]
    found = ask_view(settings, ":blame", params={"span": span, "choice": choice, "limit": limit})
    if output is Format.JSON:
        rows = [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]
        sys.stdout.write(json.dumps({"span_id": span, "run_id": run, "policy_version": version, "calls": rows}) + "\n")
        return
    console.print(f"Call {span} of run {run!r}, policy version {version}.", soft_wrap=True)
    if not found["rows"]:
        console.print("No trained call is like it: nothing that the run learned from before has its tokens.")
        return
    print_rows(console_for_rows(), found["columns"], found["rows"])
