"""Judges: a model reads ended rollouts and scores them; the scores are rewards like a person's."""

from .judging import Judging, JudgingReport
from .model import JudgeModel
from .prompts import DEFAULT_RUBRIC, Judged, Rubric, UnreadableAnswerError, UnreadableVerdictError, Verdict

__all__ = [
    "DEFAULT_RUBRIC",
    "JudgeModel",
    "Judged",
    "Judging",
    "JudgingReport",
    "Rubric",
    "UnreadableAnswerError",
    "UnreadableVerdictError",
    "Verdict",
]
