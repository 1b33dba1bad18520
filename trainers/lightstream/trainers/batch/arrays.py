"""Rows as flat arrays. Packed bytes are joined and read in place: 3 million tokens take some 20 milliseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from lightstream.stream_processors.core.segments import NO_VERSION

from .rows import Row

__all__ = ["BatchArrays", "build_arrays"]

Int64s: TypeAlias = npt.NDArray[np.int64]
Float32s: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class BatchArrays:
    """N rows; row i has ``prompt_lengths[i]`` = P_i and ``response_lengths[i]`` = R_i tokens, sum P, sum R in all.

    Attributes:
        input_ids: int64 (sum P + sum R,): prompt and response of row 0, then of row 1, …
        position_ids: int64 (sum P + sum R,): 0, 1, … within each row.
        prompt_ids: int64 (sum P,).
        response_ids: int64 (sum R,).
        response_mask: int64 (sum R,): 1 where the policy sampled the token.
        response_logprobs: float32 (sum R,): as the model server said when it sampled.
        rewards: float32 (N,).
        unit_of_row: int64 (N,): which scoring unit the row belongs to, see ``unit_rewards``.
        unit_rewards: float32 (U,): one score per unit. A rollout whose calls share one reward is one unit, so that its
            number of calls does not weigh in its group's mean; where its calls have rewards of their own, each is one.
        unit_groups: group id of each unit (U,).
        policy_versions: int64 (N,): which policy sampled the row; -1 where unknown.
    """

    prompt_lengths: Int64s
    response_lengths: Int64s
    input_ids: Int64s
    position_ids: Int64s
    prompt_ids: Int64s
    response_ids: Int64s
    response_mask: Int64s
    response_logprobs: Float32s
    rewards: Float32s
    unit_of_row: Int64s
    unit_rewards: Float32s
    unit_groups: list[str]
    policy_versions: Int64s

    def __len__(self) -> int:
        return len(self.prompt_lengths)

    @property
    def tokens(self) -> int:
        """Prompt and response tokens of all rows."""
        return len(self.input_ids)


def build_arrays(rows: Sequence[Row]) -> BatchArrays:
    """Flat arrays of ``rows`` (as :func:`select_rows` gives them: lengths agree, nothing is empty)."""
    triplets = [row.triplet for row in rows]
    prompt_lengths = np.fromiter((row.prompt_tokens for row in rows), np.int64, len(rows))
    response_lengths = np.fromiter((row.response_tokens for row in rows), np.int64, len(rows))
    lengths = prompt_lengths + response_lengths
    interleaved = b"".join([part for t in triplets for part in (t.prompt_token_ids, t.response_token_ids)])
    starts = np.cumsum(lengths) - lengths
    unit_of_row, unit_rewards, unit_groups = _units(rows)
    return BatchArrays(
        prompt_lengths=prompt_lengths,
        response_lengths=response_lengths,
        input_ids=_numbers(interleaved, "<i4", np.int64),
        position_ids=np.arange(int(lengths.sum()), dtype=np.int64) - np.repeat(starts, lengths),
        prompt_ids=_numbers(b"".join([t.prompt_token_ids for t in triplets]), "<i4", np.int64),
        response_ids=_numbers(b"".join([t.response_token_ids for t in triplets]), "<i4", np.int64),
        response_mask=_numbers(b"".join([t.response_mask for t in triplets]), "u1", np.int64),
        response_logprobs=_numbers(b"".join([t.response_logprobs or b"" for t in triplets]), "<f4", np.float32),
        rewards=np.fromiter((row.reward for row in rows), np.float32, len(rows)),
        unit_of_row=unit_of_row,
        unit_rewards=unit_rewards,
        unit_groups=unit_groups,
        policy_versions=np.fromiter(
            (NO_VERSION if t.policy_version is None else t.policy_version for t in triplets), np.int64, len(rows)
        ),
    )


def _numbers(data: bytes, stored: str, wanted: Any) -> Any:
    """A writable array of its own: torch takes no read-only memory."""
    return np.frombuffer(data, dtype=stored).astype(wanted, copy=True)


def _units(rows: Sequence[Row]) -> tuple[Int64s, Float32s, list[str]]:
    rewards_of_rollout: dict[tuple[str, str], set[float]] = {}
    for row in rows:
        rewards_of_rollout.setdefault((row.rollout_id, row.attempt_id), set()).add(row.reward)
    units: dict[tuple[str, str, int], int] = {}
    of_row: list[int] = []
    rewards: list[float] = []
    groups: list[str] = []
    for index, row in enumerate(rows):
        rollout = (row.rollout_id, row.attempt_id)
        key = (*rollout, -1 if len(rewards_of_rollout[rollout]) == 1 else index)
        unit = units.setdefault(key, len(units))
        of_row.append(unit)
        if unit == len(rewards):
            rewards.append(row.reward)
            groups.append(row.group_id)
    return np.asarray(of_row, np.int64), np.asarray(rewards, np.float32), groups
