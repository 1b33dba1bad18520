"""History assembled again by other rules, and the changes by these."""

from .comparison import Comparison, Difference, History, read_history
from .log import AttemptKey, Selection, TopicReader
from .replay import MERGES, Replay, ReplayRules, RewardsAgain
from .reward_rule import ReplayedAttempt, ReplayedCall, RewardRule, RuleErrors, load_reward_rule

__all__ = [
    "MERGES",
    "AttemptKey",
    "Comparison",
    "Difference",
    "History",
    "Replay",
    "ReplayRules",
    "ReplayedAttempt",
    "ReplayedCall",
    "RewardRule",
    "RewardsAgain",
    "RuleErrors",
    "Selection",
    "TopicReader",
    "load_reward_rule",
    "read_history",
]
