"""From groups to arrays: advantages, trained calls, and their tokens, without a loop over tokens."""

from .arrays import LOSS_NORMALISATIONS, BatchArrays, LossNormalisation, build_arrays, token_weights, tokens_distinct
from .exclusions import Exclusion, reasons_of
from .own_policy import OwnPolicy
from .policies import ALL, AgentPolicy, PolicyGroups, check_agents, check_policies, split_groups, trained
from .rows import BatchRows, ImageCheck, Overlong, Row, Span, select_rows, weigh_rows
from .scores import ADVANTAGES, Advantage, AdvantagePer, MissingReward, Scoring, group_advantages, rollout_score

__all__ = [
    "ADVANTAGES",
    "ALL",
    "LOSS_NORMALISATIONS",
    "Advantage",
    "AdvantagePer",
    "AgentPolicy",
    "BatchArrays",
    "BatchRows",
    "Exclusion",
    "ImageCheck",
    "LossNormalisation",
    "MissingReward",
    "Overlong",
    "OwnPolicy",
    "PolicyGroups",
    "Row",
    "Scoring",
    "Span",
    "build_arrays",
    "check_agents",
    "check_policies",
    "group_advantages",
    "reasons_of",
    "rollout_score",
    "select_rows",
    "split_groups",
    "token_weights",
    "tokens_distinct",
    "trained",
    "weigh_rows",
]
