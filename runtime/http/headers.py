"""Headers of our own in HTTP requests and answers, in lower case."""

from __future__ import annotations

ROLLOUT_ID_HEADER = "x-lightstream-rollout-id"
ATTEMPT_ID_HEADER = "x-lightstream-attempt-id"
"""Attribution of a request to the LLM proxy or the OTLP gateway."""

POLICY_VERSION_HEADER = "x-lightstream-policy-version"
RESOURCES_ID_HEADER = "x-lightstream-resources-id"
"""Weights that sampled an answer of the policy server, or of the LLM proxy."""
