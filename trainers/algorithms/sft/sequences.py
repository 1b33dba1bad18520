"""The sequences of supervised fine-tuning: trajectories chosen by their rewards, or conversations as text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import TrainingError
from lightstream.schemas.packing import pack_int32
from lightstream.schemas.records import AttemptStatus, RolloutMode, RolloutStatus, Trajectory, TripletRecord

from ...rollouts.batch import BatchRows, ImageCheck, Scoring, reasons_of, rollout_score, select_rows
from ...rollouts.groups import Group, group_id_of, natural_order
from .rendering import LossError, calls_of

EQUALLY = Scoring(advantage="reinforce")
"""Each sequence weighs as its reward, which is set to 1."""

ALONE = {"reward": 1.0, "mode": RolloutMode.TRAIN, "group_size": 1}
"""A trajectory that is compared with no other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A choice of trajectories to learn from.

    Attributes:
        reward_min: those with at least this reward (rejection sampling); ``None``: with any, or none.
        best_of: so many of each group, those with the highest rewards (best of n); ``None``: all.
        prompt_tokens_max, response_tokens_max: calls with a longer prompt or response are left out.
    """

    reward_min: float | None = None
    best_of: int | None = None
    prompt_tokens_max: int | None = None
    response_tokens_max: int | None = None

    def of(self, trajectories: Sequence[Trajectory]) -> list[Trajectory]:
        """The chosen ones, in the natural order of their rollouts. Of several revisions, the last counts."""
        latest: dict[tuple[str, str], Trajectory] = {}
        for trajectory in trajectories:
            name = trajectory.rollout_id, trajectory.attempt_id
            if name not in latest or latest[name].revision < trajectory.revision:
                latest[name] = trajectory
        good = [t for t in latest.values() if self.reward_min is None or _at_least(rollout_score(t), self.reward_min)]
        good.sort(key=lambda t: natural_order(t.rollout_id))
        if self.best_of is None:
            return good
        groups: dict[str, list[Trajectory]] = {}
        for trajectory in sorted(good, key=lambda t: -_or_lowest(rollout_score(t))):  # stable: ties as they stand
            groups.setdefault(group_id_of(trajectory), []).append(trajectory)
        best = {id(t) for members in groups.values() for t in members[: self.best_of]}
        return [trajectory for trajectory in good if id(trajectory) in best]


def rows_of(trajectories: Sequence[Trajectory], choice: Choice, images: ImageCheck | None = None) -> BatchRows:
    """The sequences of the chosen trajectories: every token that was sampled, as it was sampled, with the weight 1.

    ``images``: of the model, where it takes images.

    Raises:
        TrainingError: there is none; says what became of the trajectories.
    """
    chosen = choice.of(trajectories)
    rows = select_rows(
        (Group(t.rollout_id, (t.model_copy(update=ALONE),)) for t in chosen),
        scoring=EQUALLY,
        prompt_tokens_max=choice.prompt_tokens_max,
        response_tokens_max=choice.response_tokens_max,
        needs_logprobs=False,
        images=images,
    )
    if not rows.rows:
        left_out = f"; of their calls, left out: {reasons_of(rows.excluded)}" if rows.excluded else ""
        raise TrainingError(
            f"there is nothing to learn from: {len(trajectories)} trajectories, {len(chosen)} of them chosen"
            f"{left_out}.",
            next_step="Choose others: where, reward_min, best_of; `lightstream sql` shows their rewards.",
        )
    return rows


def from_view(settings: Settings, where: str) -> list[Trajectory]:
    """The trajectories of the log for which a condition on the view ``trajectories`` holds.

    Raises:
        QueryError: it is no condition.
        ServiceUnavailableError: no view answers.
    """
    from lightstream.store_views.client import ViewClient
    from lightstream.store_views.exports import Answer, read_trajectories

    client = ViewClient(settings)

    def ask(query: str) -> Answer:
        found = client.query(query)
        return Answer(columns=list(found.columns), rows=[list(row) for row in found.rows], truncated=found.truncated)

    try:
        return list(read_trajectories(ask, where))
    finally:
        client.close()


def conversations(file: Path, tokenizer: Any) -> list[Trajectory]:
    """The conversations of a file of JSON lines in OpenAI's fine-tuning format, as trajectories.

    Each message of the assistant is a call, whose prompt is what stands before it, by the tokenizer's chat template.

    Raises:
        TrainingError: the file cannot be read, a line is no such conversation, or the template refuses it or loses
            something of it (see :func:`.rendering.calls_of`). The line's number is in the message.
    """
    made: list[Trajectory] = []
    try:
        lines = file.read_text("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise TrainingError(f"the conversations {file} cannot be read: {error}.") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            calls = [
                _triplet(index, call.prompt, call.response)
                for index, call in enumerate(calls_of(row["messages"], row.get("tools"), tokenizer))
            ]
        except (LossError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise _not_learned(number, file, error) from error
        made.append(_trajectory(f"line-{number}", row.get("reward"), calls))
    return made


def _not_learned(number: int, file: Path, error: Exception) -> TrainingError:
    if isinstance(error, LossError):
        return TrainingError(
            f"line {number} of {file} cannot be learned as it is: {error}.",
            next_step="Change the line, or the `chat_template` of the model's tokenizer so that it writes this.",
        )
    return TrainingError(
        f"line {number} of {file} is no conversation: {type(error).__name__}: {error}.",
        next_step='Each line is {"messages": [...], "tools": [...]}, as `lightstream export chat` writes it.',
    )


def _triplet(index: int, prompt: Sequence[int], response: Sequence[int]) -> TripletRecord:
    return TripletRecord(
        call_index=index,
        span_id="",
        trace_id="",
        prompt_token_ids=pack_int32(prompt),
        response_token_ids=pack_int32(response),
        response_mask=b"\x01" * len(response),
    )


def _trajectory(name: str, reward: Any, calls: Sequence[TripletRecord]) -> Trajectory:
    return Trajectory(
        rollout_id=name,
        attempt_id=name,
        attempt_sequence=1,
        mode=RolloutMode.TRAIN,
        status=AttemptStatus.SUCCEEDED,
        rollout_status=RolloutStatus.SUCCEEDED,
        final=True,
        reward=None if reward is None else float(reward),
        triplets=list(calls),
        call_count=len(calls),
    )


def identity_of(rows: BatchRows) -> str:
    """The number of sequences, and a hash of their tokens and of their learned tokens."""
    digest = hashlib.sha256()
    for row in rows.rows:
        digest.update(row.segment.token_ids + row.segment.loss_mask + repr(row.spans).encode())
    return f"{len(rows.rows)} sequences ({digest.hexdigest()[:12]})"


def _at_least(score: float | None, least: float) -> bool:
    return score is not None and score >= least


def _or_lowest(score: float | None) -> float:
    return float("-inf") if score is None else score
