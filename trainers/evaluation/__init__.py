"""Evaluations: tasks answered by several models, the statistics of that, and the gate before a release."""

from .evaluating import Evaluation
from .gate import Bar, Guard
from .gating import Gate, GatedSet, traffic_tasks
from .statistics import Comparison, Estimate, Sample, Summary, comparison, summary

__all__ = [
    "Bar",
    "Comparison",
    "Estimate",
    "Evaluation",
    "Gate",
    "GatedSet",
    "Guard",
    "Sample",
    "Summary",
    "comparison",
    "summary",
    "traffic_tasks",
]
