"""Evaluations: tasks answered by several models, the statistics of that, and the gate before a release."""

from .evaluating import Evaluation
from .statistics import Comparison, Estimate, Sample, Summary, comparison, summary

__all__ = ["Comparison", "Estimate", "Evaluation", "Sample", "Summary", "comparison", "summary"]
