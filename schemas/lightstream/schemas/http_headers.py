"""Headers of our own in HTTP requests and answers, in lower case."""

from __future__ import annotations

__all__ = ["ATTEMPT_ID_HEADER", "POLICY_VERSION_HEADER", "RESOURCES_ID_HEADER", "ROLLOUT_ID_HEADER"]

ROLLOUT_ID_HEADER = "x-lightstream-rollout-id"
ATTEMPT_ID_HEADER = "x-lightstream-attempt-id"
"""Whom a request to the LLM proxy or the OTLP gateway is of."""

POLICY_VERSION_HEADER = "x-lightstream-policy-version"
RESOURCES_ID_HEADER = "x-lightstream-resources-id"
"""Which weights an answer of the policy server, or of the LLM proxy, was sampled by."""
