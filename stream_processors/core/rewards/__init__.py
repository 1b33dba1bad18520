"""Rewards: read from spans, matched to calls by link, else by log order, never by the clock."""

from ._automatic import AUTOMATIC, AutomaticRule, automatic_rules, read_automatic
from ._match import LINK_TARGETS_MAX, CallIndex, MatchedRewards, SpanAround, match_rewards, named_span
from ._read import DIMENSIONS_MAX, REWARD_MAX, RewardReading, encloses_reward, is_reward, read_rewards

__all__ = [
    "AUTOMATIC",
    "DIMENSIONS_MAX",
    "LINK_TARGETS_MAX",
    "REWARD_MAX",
    "AutomaticRule",
    "CallIndex",
    "MatchedRewards",
    "RewardReading",
    "SpanAround",
    "automatic_rules",
    "encloses_reward",
    "is_reward",
    "match_rewards",
    "named_span",
    "read_automatic",
    "read_rewards",
]
