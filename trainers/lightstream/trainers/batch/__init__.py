"""From groups to arrays: advantages, what is trained on, and its tokens, without a loop over tokens."""

from .arrays import LOSS_NORMALISATIONS, BatchArrays, LossNormalisation, build_arrays, token_weights
from .rows import BatchRows, Exclusion, Overlong, Row, Span, reasons_of, select_rows, weigh_rows
from .scores import ADVANTAGES, Advantage, AdvantagePer, MissingReward, Scoring, group_advantages, rollout_score

__all__ = [
    "ADVANTAGES",
    "LOSS_NORMALISATIONS",
    "Advantage",
    "AdvantagePer",
    "BatchArrays",
    "BatchRows",
    "Exclusion",
    "LossNormalisation",
    "MissingReward",
    "Overlong",
    "Row",
    "Scoring",
    "Span",
    "build_arrays",
    "group_advantages",
    "reasons_of",
    "rollout_score",
    "select_rows",
    "token_weights",
    "weigh_rows",
]
