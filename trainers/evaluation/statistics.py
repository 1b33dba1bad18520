"""Statistics of an evaluation: tasks, each answered several times by one or more models. Pure.

Tasks are the unit: samples of one task are not independent, so intervals resample tasks, and a comparison pairs them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

RESAMPLES = 2000
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Sample:
    """One answer of one model.

    Attributes:
        reward: 0 where the rollout failed or had no reward.
        failed: whether it did.
        tokens: of the prompts and responses of all calls.
        response_tokens: of the responses.
        cost: in the currency of the prices; ``None`` where a call has no price.
        seconds: that its calls took together.
        tool_errors: runs of tools that failed.
        refusals: calls that the model refused, or whose answer was filtered.
        versions: of the policy that answered, where the model server says so.
    """

    model: str
    task: int
    reward: float
    failed: bool = False
    tokens: int = 0
    cost: float | None = None
    response_tokens: int = 0
    seconds: float = 0.0
    tool_errors: int = 0
    refusals: int = 0
    versions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over tasks, and its interval at :data:`CONFIDENCE`."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Summary:
    """The results of one model.

    Attributes:
        tasks, samples, failed: how many there are.
        reward: mean reward.
        passes: k -> pass@k, for k = 1 and the least number of samples that a task has.
        tokens, cost: sums.
    """

    model: str
    tasks: int
    samples: int
    failed: int
    reward: Estimate
    passes: Mapping[int, Estimate]
    tokens: int
    cost: float | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two models on the tasks that both have answered.

    Attributes:
        difference: mean reward of ``model`` less that of ``baseline``, a task's means paired.
        probability: that a difference at least as large comes about by chance: a permutation test over the signs of
            the tasks' differences (Fisher), two-sided.
    """

    model: str
    baseline: str
    tasks: int
    difference: Estimate
    probability: float

    def is_not_worse(self, margin: float) -> bool:
        """Whether the model is surely at most ``margin`` worse: the whole interval says so (non-inferiority)."""
        return self.difference.low >= -margin


def pass_at_k(samples: int, passed: int, k: int) -> float:
    """The probability that one of ``k`` answers passes, without bias (Chen et al., 2021, arXiv 2107.03374, equation 1).

    Args:
        samples: answers of the task, at least ``k``.
        passed: how many of them passed.
    """
    if samples - passed < k:
        return 1.0
    return 1.0 - math.prod(1.0 - k / number for number in range(samples - passed + 1, samples + 1))


def summary(samples: Sequence[Sample], *, passes_from: float = 1.0, seed: int = 0) -> Summary:
    """Summarise the answers of one model.

    Args:
        samples: at least one, all of one model.
        passes_from: an answer with at least this reward passes.
        seed: of the resampling.
    """
    of_task = by_task(samples)
    k_max = min(map(len, of_task.values()))
    passed = {task: sum(s.reward >= passes_from for s in some) for task, some in of_task.items()}
    costs = [sample.cost for sample in samples]
    return Summary(
        model=samples[0].model,
        tasks=len(of_task),
        samples=len(samples),
        failed=sum(sample.failed for sample in samples),
        reward=estimate([fmean(s.reward for s in some) for some in of_task.values()], seed),
        passes={
            k: estimate([pass_at_k(len(some), passed[task], k) for task, some in of_task.items()], seed)
            for k in sorted({1, k_max})
        },
        tokens=sum(sample.tokens for sample in samples),
        cost=None if None in costs else sum(cost for cost in costs if cost is not None),
    )


def comparison(samples: Sequence[Sample], baseline: Sequence[Sample], *, seed: int = 0) -> Comparison | None:
    """Compare two models; ``None`` if no task has answers of both."""
    ours, theirs = by_task(samples), by_task(baseline)
    shared = [task for task in ours if task in theirs]
    if not shared:
        return None
    differences = [fmean(s.reward for s in ours[task]) - fmean(s.reward for s in theirs[task]) for task in shared]
    return Comparison(
        samples[0].model, baseline[0].model, len(shared), estimate(differences, seed), _chance(differences, seed)
    )


def estimate(values: Sequence[float], seed: int = 0) -> Estimate:
    """The mean of one value a task, with the percentile interval of the bootstrap (Efron, 1979)."""
    rng = random.Random(seed)  # noqa: S311  # resampling, no secret
    means = sorted(fmean(rng.choices(values, k=len(values))) for _ in range(RESAMPLES))
    tail = (1.0 - CONFIDENCE) / 2
    return Estimate(fmean(values), means[int(tail * RESAMPLES)], means[int((1.0 - tail) * RESAMPLES) - 1])


def _chance(differences: Sequence[float], seed: int) -> float:
    rng = random.Random(seed)  # noqa: S311  # as above
    seen = abs(sum(differences))
    as_large = sum(
        abs(sum(value if rng.random() < 0.5 else -value for value in differences)) >= seen - 1e-12
        for _ in range(RESAMPLES)
    )
    return (as_large + 1) / (RESAMPLES + 1)


def chance_of_at_least(values: Sequence[float], *, resamples: int = RESAMPLES, seed: int = 0) -> float:
    """The probability of a mean at least as large by chance, were the values symmetric about 0. One-sided.

    The permutation test over signs (Fisher, The Design of Experiments, 1935, section 21), by ``resamples`` draws. With
    n values it is at least about 2**-n, so that a handful of values never says much.
    """
    rng = random.Random(seed)  # noqa: S311  # as above
    # Eight values at a time: a random byte is their signs, and the table has the sum for each.
    tables = [_signed_sums(values[start : start + 8]) for start in range(0, len(values), 8)]
    least = sum(values) - 1e-9 * sum(map(abs, values))
    as_large = 0
    for _ in range(resamples):
        signs = rng.randbytes(len(tables))
        as_large += sum(table[byte] for table, byte in zip(tables, signs, strict=True)) >= least
    return (as_large + 1) / (resamples + 1)


def _signed_sums(values: Sequence[float]) -> list[float]:
    return [sum(value if byte >> place & 1 else -value for place, value in enumerate(values)) for byte in range(256)]


def by_task(samples: Sequence[Sample]) -> dict[int, list[Sample]]:
    """Task -> its samples, in the order of their first."""
    found: dict[int, list[Sample]] = {}
    for sample in samples:
        found.setdefault(sample.task, []).append(sample)
    return found
