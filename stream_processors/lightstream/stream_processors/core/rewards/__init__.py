"""Rewards: read from spans, matched to calls by link, else by log order, never by the clock."""

from ._match import LINK_TARGETS_MAX, REWARD_MATCHES, CallIndex, MatchedRewards, match_rewards
from ._read import DIMENSIONS_MAX, RewardReading, encloses_reward, read_rewards

__all__ = [
    "DIMENSIONS_MAX",
    "LINK_TARGETS_MAX",
    "REWARD_MATCHES",
    "CallIndex",
    "MatchedRewards",
    "RewardReading",
    "encloses_reward",
    "match_rewards",
    "read_rewards",
]
