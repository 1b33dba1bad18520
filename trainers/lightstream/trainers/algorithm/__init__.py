"""The algorithm's interface, and its context."""

from .context import AlgorithmContext, CollectError
from .interface import Algorithm, AlgorithmFunction, FunctionAlgorithm, algo, as_algorithm

__all__ = [
    "Algorithm",
    "AlgorithmContext",
    "AlgorithmFunction",
    "CollectError",
    "FunctionAlgorithm",
    "algo",
    "as_algorithm",
]
