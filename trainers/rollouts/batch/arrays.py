"""Rows as flat arrays. Packed bytes are joined and read in place, without a loop over tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from lightstream.schemas.packing import TOKEN_BYTES
from lightstream.stream_processors.core.segments import NO_VERSION

from .rows import BatchRows, Row

Int64s: TypeAlias = npt.NDArray[np.int64]
Float32s: TypeAlias = npt.NDArray[np.float32]
Float64s: TypeAlias = npt.NDArray[np.float64]
LossNormalisation: TypeAlias = Literal["token", "rollout", "sequence", "constant"]

LOSS_NORMALISATIONS: tuple[str, ...] = ("token", "rollout", "sequence", "constant")

NO_CALL = -1
"""``calls`` of a token that is not trained on."""


@dataclass(frozen=True, slots=True)
class BatchArrays:
    """N rows; row i has ``prompt_lengths[i]`` = P_i and ``response_lengths[i]`` = R_i tokens, sum P, sum R in all.

    A row is a merged segment: its "response" begins with the first token that is trained on and ends with the last, and
    holds what came between calls too, with mask 0.

    Attributes:
        input_ids: int64 (sum P + sum R,): prompt and response of row 0, then of row 1, …
        position_ids: int64 (sum P + sum R,): 0, 1, … within each row.
        prompt_ids: int64 (sum P,).
        response_ids: int64 (sum R,).
        response_mask: int64 (sum R,): 1 where the token is trained on, which the policy sampled.
        response_logprobs: float32 (sum R,): as the model server said when it sampled; 0 where the mask is 0.
        advantages: float32 (sum R,): of each token; 0 where the mask is 0. Under ``gae``, the reward of its rollout (or
            call), until the engine has made advantages of them.
        calls: int64 (sum R,): number of the call that sampled the token, in its rollout; -1 where the mask is 0.
        policy_versions: int64 (sum R,): which policy sampled the token; -1 where unknown or where the mask is 0.
        rollout_of_row: int64 (N,): which rollout the row belongs to, see ``rollout_scores``.
        rollout_scores: float32 (M,): one score per rollout; NaN where only its calls have rewards.
        rollout_groups: group id of each rollout (M,).
        images: files of the images that each row shows (N,), in their order.
        rollouts_asked, sequences_asked: of the groups as they were enqueued, rollouts and segments that have no row
            included.
    """

    prompt_lengths: Int64s
    response_lengths: Int64s
    input_ids: Int64s
    position_ids: Int64s
    prompt_ids: Int64s
    response_ids: Int64s
    response_mask: Int64s
    response_logprobs: Float32s
    advantages: Float32s
    calls: Int64s
    policy_versions: Int64s
    rollout_of_row: Int64s
    rollout_scores: Float32s
    rollout_groups: list[str]
    images: list[tuple[bytes, ...]]
    rollouts_asked: int
    sequences_asked: int

    def __len__(self) -> int:
        return len(self.prompt_lengths)

    @property
    def lengths(self) -> Int64s:
        """int64 (N,): tokens of each row."""
        return self.prompt_lengths + self.response_lengths

    @property
    def tokens(self) -> int:
        """Prompt and response tokens of all rows."""
        return len(self.input_ids)

    @property
    def row_of_token(self) -> Int64s:
        """int64 (sum R,): the row of each response token."""
        return np.repeat(np.arange(len(self)), self.response_lengths)

    @property
    def rows_with_signal(self) -> Int64s:
        """Numbers of the rows that have an advantage other than zero, ascending."""
        return np.unique(self.row_of_token[self.advantages != 0])


def build_arrays(selected: BatchRows) -> BatchArrays:
    """Flat arrays of the result of :func:`select_rows`."""
    rows = selected.rows
    prompt_lengths = np.fromiter((row.prompt_length for row in rows), np.int64, len(rows))
    lengths = np.fromiter((row.length for row in rows), np.int64, len(rows))
    starts = np.cumsum(lengths) - lengths
    position_ids = np.arange(int(lengths.sum()), dtype=np.int64) - np.repeat(starts, lengths)
    in_response = position_ids >= np.repeat(prompt_lengths, lengths)
    input_ids = _joined((row.segment.token_ids for row in rows), rows, "<i4", np.int64)
    advantages = _spread(rows, [[span.advantage for span in row.spans] for row in rows], np.nan)
    calls = _spread(rows, [[span.call_index for span in row.spans] for row in rows], NO_CALL)
    mask = _joined((row.segment.loss_mask for row in rows), rows, "u1", np.int64)[in_response]
    mask *= ~np.isnan(advantages)
    trained = mask == 1
    logprobs = _joined((row.segment.logprobs for row in rows), rows, "<f4", np.float32)[in_response]
    versions = _joined((row.segment.policy_versions for row in rows), rows, "<i4", np.int64)[in_response]
    return BatchArrays(
        prompt_lengths=prompt_lengths,
        response_lengths=lengths - prompt_lengths,
        input_ids=input_ids,
        position_ids=position_ids,
        prompt_ids=input_ids[~in_response],
        response_ids=input_ids[in_response],
        response_mask=mask,
        response_logprobs=np.where(trained, logprobs, np.float32(0)),
        advantages=np.where(trained, advantages, 0.0).astype(np.float32),
        calls=np.where(trained, calls, NO_CALL).astype(np.int64),
        policy_versions=np.where(trained, versions, NO_VERSION),
        rollout_of_row=np.fromiter((row.rollout for row in rows), np.int64, len(rows)),
        rollout_scores=np.asarray(selected.scores, np.float32),
        rollout_groups=list(selected.groups),
        images=[row.images for row in rows],
        rollouts_asked=max(selected.rollouts_asked, len(selected.scores)),
        sequences_asked=max(selected.sequences_asked, len(rows)),
    )


def token_weights(arrays: BatchArrays, normalisation: LossNormalisation, *, constant_tokens: int = 1) -> Float64s:
    """Weight of each response token in the loss, float64 (sum R,); 0 where the mask is 0.

    ``token``: all tokens weigh the same, 1 / (trained tokens) (DAPO, arXiv:2503.14476). ``rollout``: each rollout
    weighs 1 / (rollouts), and the tokens within one the same. ``sequence``: the same of rows, 1 / (segments) each (the
    GRPO paper's, arXiv:2402.03300, where a rollout is one row). ``constant``: each token weighs 1 / (rollouts *
    ``constant_tokens``), so that the length of an answer does not change the weight of its tokens (Dr. GRPO,
    arXiv:2503.20783). Rollouts and segments are counted as they were asked for: one that failed, was too long or
    another model's leaves the weights of the others as they are.
    """
    mask = arrays.response_mask.astype(np.float64)
    if not mask.any():
        return mask
    if normalisation == "token":
        return mask / float(mask.sum())
    if normalisation == "constant":
        return mask / (arrays.rollouts_asked * constant_tokens)
    if normalisation == "sequence":
        whole, count = arrays.row_of_token, arrays.sequences_asked
    else:
        whole, count = arrays.rollout_of_row[arrays.row_of_token], arrays.rollouts_asked
    tokens_of_whole = np.bincount(whole, weights=mask)
    per_token = np.divide(1.0, tokens_of_whole, out=np.zeros_like(tokens_of_whole), where=tokens_of_whole > 0)
    return mask * per_token[whole] / count


def tokens_distinct(arrays: BatchArrays, rows: Sequence[int]) -> int:
    """Tokens of some rows, each once for all rows of a rollout that begin with the same tokens up to it."""
    starts = np.cumsum(arrays.lengths) - arrays.lengths
    of_rollouts: dict[int, list[bytes]] = {}
    for row in rows:
        ids = arrays.input_ids[starts[row] : starts[row] + arrays.lengths[row]]
        of_rollouts.setdefault(int(arrays.rollout_of_row[row]), []).append(ids.tobytes())
    shared = 0
    for sequences in of_rollouts.values():
        for a, b in pairwise(sorted(sequences)):  # those that begin alike come together, in whatever order of numbers
            length = min(len(a), len(b))
            differs = np.frombuffer(a[:length], np.int64) != np.frombuffer(b[:length], np.int64)
            shared += int(differs.argmax()) if differs.any() else len(differs)
    return int(arrays.lengths[list(rows)].sum()) - shared


def _joined(parts: Iterable[bytes], rows: list[Row], stored: str, wanted: Any) -> Any:
    """The first ``row.length`` entries of each part, as a writable array of its own: torch takes no other."""
    size = 1 if stored == "u1" else TOKEN_BYTES
    data = b"".join([part[: row.length * size] for part, row in zip(parts, rows, strict=True)])
    return np.frombuffer(data, dtype=stored).astype(wanted, copy=True)


def _spread(rows: list[Row], of_spans: Sequence[Sequence[float]], between: float) -> Float64s:
    """The value of each response token's span, float64 (sum R,); ``between`` the spans, this one."""

    def pieces() -> Iterator[tuple[int, float]]:
        for row, of_row in zip(rows, of_spans, strict=True):
            yield row.spans[0].end - row.spans[0].start, of_row[0]
            for (before, span), value in zip(pairwise(row.spans), of_row[1:], strict=True):
                yield span.start - before.end, between
                yield span.end - span.start, value

    counts_and_values = list(pieces())
    counts = np.fromiter((count for count, _ in counts_and_values), np.int64, len(counts_and_values))
    values = np.fromiter((value for _, value in counts_and_values), np.float64, len(counts_and_values))
    return np.repeat(values, counts)
