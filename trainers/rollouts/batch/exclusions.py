"""Reasons why calls of a step are not trained on, as the log has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum


class Exclusion(StrEnum):
    """The reason why a call (for ``no_calls``: a rollout) has no weight in the batch."""

    NO_CALLS = "no_calls"
    """The trajectory has no triplet: the attempt failed early, or its calls were dropped (each with its reason)."""
    NOT_FOR_TRAINING = "not_for_training"
    """It is of the greedy rollout that others are compared with."""
    FROZEN_AGENT = "frozen_agent"
    """Its agent belongs to no policy that is trained."""
    OTHER_POLICY = "other_policy"
    """Another model sampled it than the policy that is trained (or its agent's), or another run's, or nobody knows
    which."""
    NO_REWARD = "no_reward"
    """Nothing says how good it was. Missing is not 0, unless ``reward_missing`` says so."""
    NOT_COMPARABLE = "not_comparable"
    """It has a reward, but no other of its group has one (or not the greedy rollout): there is no baseline."""
    GROUP_FAILED = "group_failed"
    """Another rollout of the group has no reward, and ``reward_missing="fail_group"``."""
    NO_SIGNAL = "no_signal"
    """Its advantage is zero: it was as good as the mean of its group."""
    REJECTED = "rejected"
    """Rejection sampling chose better rollouts."""
    NO_LOGPROBS = "no_logprobs"
    """The model server did not say how likely the tokens were."""
    EMPTY = "empty"
    """Prompt or response has no token."""
    MISALIGNED = "misaligned"
    """Ids, log-probabilities and mask differ in length, or a log-probability is not a number."""
    TOO_LONG = "too_long"
    """Over the limits of the batch."""
    STALE = "stale"
    """A token of it was sampled by a policy older than the bound."""
    UNKNOWN_VERSION = "unknown_version"
    """Nobody knows which policy sampled it, and there is a bound."""
    OTHER_TEMPERATURE = "other_temperature"
    """Its request had another temperature than the one that is trained at, or nobody recorded the request."""
    OTHER_SAMPLING = "other_sampling"
    """Its request changed the distribution otherwise: ``top_p``, a penalty, a format that the answer had to have, …"""
    NOT_FINITE = "not_finite"
    """Its reward or advantage is no finite number within float32; or the gradient of its update was none."""
    LOGPROB_GAP = "logprob_gap"
    """The actor does not give its tokens the probabilities that they were sampled with: the step was discarded."""
    BAD_IMAGE = "bad_image"
    """An image that it shows cannot be read."""
    IMAGES_MISMATCH = "images_mismatch"
    """The places for images among its tokens are not those of the images recorded with it."""


def reasons_of(counts: Mapping[Exclusion, int]) -> str:
    """Reasons and their counts in words, the commonest first."""
    return ", ".join(f"{reason.value} {count}" for reason, count in Counter(counts).most_common())
