"""Credit rules, by name."""

from ._rules import CreditRule, CreditStep, assign, credit_rule, credit_rule_names, register_credit_rule
from ._with_rewards import with_rewards

__all__ = [
    "CreditRule",
    "CreditStep",
    "assign",
    "credit_rule",
    "credit_rule_names",
    "register_credit_rule",
    "with_rewards",
]
