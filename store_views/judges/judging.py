"""Takes rollouts from the queue ``:unjudged``, asks the judge, and sends the scores as feedback.

The log is all the state there is: a rollout is in the queue until its score is in the log. So a judge may be killed
anywhere, and several with one name may run: the same score is one score.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any

from lightstream.schemas.errors import NotFoundError, ServiceUnavailableError

from ..client import ViewClient
from .model import JudgeModel
from .prompts import Judged, Rubric, UnreadableAnswerError, UnreadableVerdictError, Verdict, conversation_of

logger = logging.getLogger(__name__)

TRIES = 3
"""Answers that cannot be read, before a rollout is passed over."""
POLL_S = 1.0
BATCH = 64
SCORES_MAX = 500
"""In one request; the view takes 1,000."""
COMMENT_CHARS_MAX = 10_000
BY_CHARS_MAX = 200

_CALLS = """
SELECT request_json, response_json FROM llm_calls
WHERE rollout_id = $rollout AND attempt_id = $attempt
    AND (reason IS NULL OR reason NOT IN ('call_failed', 'inside_reward', 'duplicate_call'))
ORDER BY start_unix_nano, span_id, choice_index
"""


@dataclass(slots=True)
class JudgingReport:
    """The work of a judge.

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
        """Judge ended rollouts, and new ones, until ``stopping`` is set; or once all that has ended is judged.

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
        params = self._params | {"limit": BATCH + len(self.report.unreadable)}
        rows = self._client.query(":unjudged", "now", params=params).dicts()
        rows = [row for row in rows if row["rollout_id"] not in self.report.unreadable]
        together = "group_id" if self._rubric.relative else "rollout_id"
        groups = [list(members) for _, members in groupby(rows, key=lambda row: row[together])]
        groups = [group for group in groups if any(row["is_unjudged"] for row in group)]
        conversations = self._conversations([row for group in groups for row in group])
        return [
            [
                Judged(row["rollout_id"], row["attempt_id"], _task(row["input_json"]), conversations[row["rollout_id"]])
                for row in group
            ]
            for group in groups
            if all(
                row["rollout_id"] in conversations for row in group
            )  # of a group with another, the next round takes the rest
        ]

    def _conversations(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
        """Rollout -> its messages; those without any are reported."""
        conversations: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            named = {"rollout": row["rollout_id"], "attempt": row["attempt_id"]}
            answer = self._client.query(_CALLS, params=named)
            messages = conversation_of([(request, response) for request, response in answer.rows])
            if answer.truncated:
                self.report.unreadable[row["rollout_id"]] = "its calls are more than the view answers at once."
            elif not messages:
                self.report.unreadable[row["rollout_id"]] = "the log has no text of its calls."
            else:
                conversations[row["rollout_id"]] = messages
        return conversations

    def _judge(self, works: Sequence[Sequence[Judged]], pool: ThreadPoolExecutor) -> None:
        """Ask for each; all scores that there are go out, also where a question fails for good."""
        answers = {pool.submit(self._verdicts, work): work for work in works}
        failure: Exception | None = None
        for answer in as_completed(answers):
            work = answers[answer]
            try:
                self._send(work, answer.result())
            except UnreadableVerdictError as error:
                self.report.unreadable |= {judged.rollout_id: error.message for judged in work}
                logger.warning("rollout %s is not judged: %s", work[0].rollout_id, error)
            except Exception as error:  # noqa: BLE001  # raised below, once the other scores are sent
                failure = failure or error
        if failure is not None:
            raise failure

    def _verdicts(self, work: Sequence[Judged]) -> list[Verdict]:
        messages = self._rubric.messages(work)
        for number in range(TRIES - 1):
            with suppress(UnreadableAnswerError):
                return self._model.ask(messages, partial(self._rubric.verdicts, work), number=number)
        return self._model.ask(messages, partial(self._rubric.verdicts, work), number=TRIES - 1)

    def _send(self, work: Sequence[Judged], verdicts: Sequence[Verdict]) -> None:
        scores = [
            {
                "rollout_id": judged.rollout_id,
                "attempt_id": judged.attempt_id,
                "score": verdict.score,
                "name": self._name,
                "comment": verdict.reason[:COMMENT_CHARS_MAX],
                "key": f"judge/{self._name}",
                "by": f"judge {self._model.model}"[:BY_CHARS_MAX],
            }
            for judged, verdict in zip(work, verdicts, strict=True)
        ]
        for start in range(0, len(scores), SCORES_MAX):
            batch = scores[start : start + SCORES_MAX]
            for score, result in zip(batch, self._client.feedback(batch), strict=True):
                self._note(str(score["rollout_id"]), result)
        self._on_judged(verdicts)

    def _note(self, rollout_id: str, result: Mapping[str, Any]) -> None:
        error = result.get("error")
        if error is None:
            self.report.judged += not result["repeated"]
        elif error["type"] in ("ServiceUnavailableError", "PublishError"):
            raise ServiceUnavailableError(error["message"], next_step=error["next_step"])
        elif error["type"] != NotFoundError.__name__:  # of another attempt by now: that is judged in its turn
            self.report.unreadable[rollout_id] = error["message"]


def _task(input_json: str) -> Any:
    try:
        return json.loads(input_json)
    except (ValueError, RecursionError):
        return input_json
