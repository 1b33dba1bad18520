"""History assembled again by other rules, and what they would have changed."""

from .compare import Comparison, Difference
from .history import History, read_history
from .log import TopicReader
from .replay import MERGES, Replay, ReplayRules
from .reward_rule import ReplayedAttempt, ReplayedCall, RewardRule, load_reward_rule
from .rule_errors import RuleErrors
from .selection import AttemptKey, Selection

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
    "RuleErrors",
    "Selection",
    "TopicReader",
    "load_reward_rule",
    "read_history",
]
