"""What an algorithm is, and what it is given to work with."""

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
