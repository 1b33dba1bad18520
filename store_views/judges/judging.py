"""Takes rollouts from the queue ``:unjudged``, asks the judge, and sends the scores as feedback.

The log is all the state there is: a rollout is in the queue until its score is in the log. So a judge may be killed
anywhere, and several with one name may run: the same score is one score.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from lightstream.schemas.errors import ServiceUnavailableError

from ..client import ViewClient
from .model import JudgeModel
from .prompts import Judged, Rubric, UnreadableVerdictError, Verdict, conversation_of

logger = logging.getLogger(__name__)

TRIES = 3
"""Answers that cannot be read, before a rollout is passed over."""
POLL_S = 1.0
BATCH = 64

_CALLS = """
SELECT rollout_id, request_json, response_json FROM llm_calls
WHERE rollout_id IN (SELECT unnest($rollouts)) AND attempt_id IN (SELECT unnest($attempts))
    AND (reason IS NULL OR reason NOT IN ('call_failed', 'inside_reward', 'duplicate_call'))
ORDER BY rollout_id, start_unix_nano, span_id, choice_index
"""


@dataclass(slots=True)
class JudgingReport:
    """What a judge did.

    Attributes:
        judged: rollouts that have a score now.
        unreadable: rollout -> why its verdict could not be read.
    """

    judged: int = 0
    unreadable: dict[str, str] = field(default_factory=dict[str, str])


class Judging:
    """Judges the rollouts of a run, or of all. Blocks.

    Args:
        name: of the reward.
        run_id, mode: which rollouts; ``None``: all.
        at_once: questions under way.
        stopping: set where it is to end.
        on_judged: told the verdicts once they are in the log.
    """

    def __init__(
        self,
        client: ViewClient,
        model: JudgeModel,
        rubric: Rubric,
        *,
        name: str,
        run_id: str | None = None,
        mode: str | None = None,
        at_once: int = 4,
        stopping: threading.Event | None = None,
        on_judged: Callable[[Sequence[Verdict]], None] = lambda _: None,
    ) -> None:
        self._client = client
        self._model = model
        self._rubric = rubric
        self._name = name
        self._params = {"name": name, "run": run_id, "mode": mode, "whole_groups": rubric.relative}
        self._at_once = at_once
        self._stopping = stopping or threading.Event()
        self._on_judged = on_judged
        self.report = JudgingReport()

    def run(self, *, once: bool = False) -> JudgingReport:
        """Judge what has ended, and what still ends, until ``stopping`` is set; or once all that has ended is judged.

        Raises:
            BudgetSpentError, SettingsError, StoppedError: as :meth:`JudgeModel.ask`. Scores that were sent before stay.
            ServiceUnavailableError: the view is away for longer than its client's patience.
        """
        with ThreadPoolExecutor(self._at_once, thread_name_prefix="judge") as pool:
            while not self._stopping.is_set():
                works = self._next()
                if works:
                    self._judge(works, pool)
                elif once:
                    break
                else:
                    self._stopping.wait(POLL_S)
        return self.report

    def _next(self) -> list[list[Judged]]:
        """The works of the next questions: one each, or those of a group."""
        passed_over = len(self.report.unreadable)
        params = self._params | {"limit": BATCH + passed_over}
        rows = self._client.query(":unjudged", "now", params=params).dicts()
        rows = [row for row in rows if row["rollout_id"] not in self.report.unreadable]
        if not rows:
            return []
        said = self._conversations(rows)
        works: list[list[Judged]] = []
        together = "group_id" if self._rubric.relative else "rollout_id"
        for _, members in groupby(rows, key=lambda row: row[together]):
            work = [
                Judged(row["rollout_id"], _task(row["input_json"]), said.get(row["rollout_id"], [])) for row in members
            ]
            works.append(work)
        return works

    def _conversations(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
        named = {"rollouts": [row["rollout_id"] for row in rows], "attempts": [row["attempt_id"] for row in rows]}
        calls = self._client.query(_CALLS, params=named).rows
        return {
            rollout_id: conversation_of([(request, answer) for _, request, answer in group])
            for rollout_id, group in groupby(calls, key=lambda row: row[0])
        }

    def _judge(self, works: Sequence[Sequence[Judged]], pool: ThreadPoolExecutor) -> None:
        """Ask for each; all scores that there are go out, also where a question fails for good."""
        silent = [judged.rollout_id for work in works for judged in work if not judged.conversation]
        self.report.unreadable |= dict.fromkeys(silent, "the log has no text of its calls.")
        readable = [work for work in works if all(judged.conversation for judged in work)]
        answers = [(work, pool.submit(self._verdicts, work)) for work in readable]
        failure: Exception | None = None
        verdicts: list[Verdict] = []
        for work, answer in answers:
            try:
                verdicts += answer.result()
            except UnreadableVerdictError as error:
                self.report.unreadable |= {judged.rollout_id: error.message for judged in work}
                logger.warning("rollout %s is not judged: %s", work[0].rollout_id, error)
            except Exception as error:  # noqa: BLE001  # raised below, once the other scores are sent
                failure = failure or error
        if verdicts:
            self._send(verdicts)
        if failure is not None:
            raise failure

    def _verdicts(self, work: Sequence[Judged]) -> list[Verdict]:
        messages = self._rubric.messages(work)
        number = 0
        while True:
            answer = self._model.ask(messages, number=number)
            try:
                return self._rubric.verdicts(work, answer)
            except UnreadableVerdictError:
                number += 1
                if number == TRIES:
                    raise

    def _send(self, verdicts: Sequence[Verdict]) -> None:
        scores = [
            {
                "rollout_id": verdict.rollout_id,
                "score": verdict.score,
                "name": self._name,
                "comment": verdict.reason[:10_000],
                "key": f"judge/{self._name}",
            }
            for verdict in verdicts
        ]
        for verdict, result in zip(verdicts, self._client.feedback(scores), strict=True):
            error = result.get("error")
            if error is None:
                self.report.judged += not result["repeated"]
            elif error["type"] in ("ServiceUnavailableError", "PublishError"):
                raise ServiceUnavailableError(error["message"], next_step=error["next_step"])
            else:
                self.report.unreadable[verdict.rollout_id] = error["message"]
        self._on_judged(verdicts)


def _task(input_json: str) -> Any:
    try:
        return json.loads(input_json)
    except (ValueError, RecursionError):
        return input_json
