"""Names of the rules of assembly, as settings and rollouts may give them."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias, get_args

RULE_CHARACTERS_MAX = 1000
"""Of a rule that travels with each rollout: as the name of a file, or an alternative of many agents."""

CREDIT_RULES = ("identical", "identical_plus_own", "last_call_only")
"""Those that are a name alone."""

RewardMatchName: TypeAlias = Literal["trajectory", "log_order", "first_occurrence", "first_sibling"]

REWARD_MATCHES: tuple[RewardMatchName, ...] = get_args(RewardMatchName)
"""Rules for a reward without a link: it is for the whole trajectory; for the last call before it in the log; for the
last one before it that has no reward yet (Agent Lightning's policy); or for the last such sibling in the tree.
Where there is no such call it is for the whole trajectory."""


def checked_credit(name: str) -> str:
    """``name``, which has the form of a credit rule. Whether a user's function exists is known where it is used.

    Raises:
        ValueError: it has not.
    """
    kind, colon, argument = name.partition(":")
    if kind == "discounted":
        discount = float(argument or "nan")  # a ValueError says itself what is wrong
        known = 0.0 <= discount <= 1.0
    else:
        known = name in CREDIT_RULES or (bool(kind and colon) and name.rpartition(":")[2].isidentifier())
    if not known:
        raise ValueError(
            f"there is no such rule; use {', '.join(CREDIT_RULES)}, discounted:<0..1>, module:function or "
            "file.py:function"
        )
    return name


def is_credit_name(name: str) -> bool:
    """True if a credit rule is one of ours, and no function of a user's."""
    return name in CREDIT_RULES or name.startswith("discounted:")


def checked_match(name: str) -> str:
    """``name``, which is one of :data:`REWARD_MATCHES`.

    Raises:
        ValueError: it is not.
    """
    if name not in REWARD_MATCHES:
        raise ValueError(f"there is no such rule; use {', '.join(REWARD_MATCHES)}")
    return name


def checked_expression(expression: str) -> str:
    """``expression``, which is a regular one.

    Raises:
        ValueError: it is not.
    """
    try:
        re.compile(expression)
    except (re.error, OverflowError, RecursionError) as error:  # the latter two: numbers and nesting beyond its limits
        raise ValueError(f"it is not a regular expression: {error}") from error
    return expression
