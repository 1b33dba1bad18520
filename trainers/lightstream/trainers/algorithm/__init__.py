"""The algorithm's interface, and its context."""

from .context import GROUP_SKIPPED, AlgorithmContext, CollectError
from .interface import Algorithm, AlgorithmFunction, FunctionAlgorithm, algo, as_algorithm

__all__ = [
    "GROUP_SKIPPED",
    "Algorithm",
    "AlgorithmContext",
    "AlgorithmFunction",
    "CollectError",
    "FunctionAlgorithm",
    "algo",
    "as_algorithm",
]
