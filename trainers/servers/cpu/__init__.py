"""An OpenAI-shaped server for the policy under training: token ids, log-probabilities, named versions.

Weights are swapped without dropping or mixing requests: each answer comes from one version, and names it.
"""

from .app import create_app
from .policy_version import NEWEST, PolicyVersion, Versions
from .server import policy_server, run

__all__ = ["NEWEST", "PolicyVersion", "Versions", "create_app", "policy_server", "run"]
