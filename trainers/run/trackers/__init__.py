"""Trackers: TensorBoard, Weights & Biases, MLflow and Trackio, told of every committed step by the log itself."""

from .following import Trackers
from .kinds import MLflow, Samples, TensorBoard, TrackedStep, Tracker, Trackio, Wandb

__all__ = ["MLflow", "Samples", "TensorBoard", "TrackedStep", "Tracker", "Trackers", "Trackio", "Wandb"]
