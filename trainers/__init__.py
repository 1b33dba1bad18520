"""The trainer's side of Lightstream: Trainers, algorithms, stores, and clients of the view. Imports nothing until it is
used.

A program imports from here, from ``lightstream.producers`` and, for the view in a notebook, from
``lightstream.store_views``, and from nothing deeper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightstream.runtime.lazy import lazy_names

if TYPE_CHECKING:
    from lightstream.runtime.settings import Settings
    from lightstream.schemas.interfaces import LightningStore
    from lightstream.schemas.types import (
        LLM,
        Assembly,
        EnqueueRolloutRequest,
        NamedResources,
        PromptTemplate,
        ProxyLLM,
        Rollout,
        RolloutConfig,
    )
    from lightstream.store_views.client import AsyncViewClient, ViewClient
    from lightstream.store_views.stores import InMemoryLightningStore, KafkaLightningStore
    from lightstream.store_views.stores.http import LightningStoreClient, LightningStoreServer

    from .algorithms.context import AlgorithmContext
    from .algorithms.continuous.continuous import Continuous, PlannedWindow
    from .algorithms.continuous.learners import Learner, Lesson, Reinforce, RejectionSampling
    from .algorithms.continuous.rules import Rule
    from .algorithms.interface import Algorithm, algo
    from .algorithms.own.consumer import trajectories
    from .algorithms.own.policy import Policy
    from .algorithms.own.step import Step
    from .algorithms.recorded import train_recorded
    from .algorithms.replaying import replay_training
    from .algorithms.sft import SFT
    from .algorithms.trainer import Trainer
    from .algorithms.verl import VERL
    from .engines.exports import save_torch_batch, torch_batch, verl_batch
    from .engines.verl import RolloutCorrection, VerlConfig, teach_answers
    from .rollouts.batch import AgentPolicy
    from .rollouts.groups import Group
    from .run.checkpoint import checkpoint_folder
    from .run.model.tiny_model import make_tiny_model
    from .run.report import StepObserver, StepReport
    from .run.trackers import MLflow, TensorBoard, TrackedStep, Tracker, Trackio, Wandb
    from .servers.vllm import VllmOptions

__all__ = [
    "LLM",
    "SFT",
    "VERL",
    "AgentPolicy",
    "Algorithm",
    "AlgorithmContext",
    "Assembly",
    "AsyncViewClient",
    "Continuous",
    "EnqueueRolloutRequest",
    "Group",
    "InMemoryLightningStore",
    "KafkaLightningStore",
    "Learner",
    "Lesson",
    "LightningStore",
    "LightningStoreClient",
    "LightningStoreServer",
    "MLflow",
    "NamedResources",
    "PlannedWindow",
    "Policy",
    "PromptTemplate",
    "ProxyLLM",
    "Reinforce",
    "RejectionSampling",
    "Rollout",
    "RolloutConfig",
    "RolloutCorrection",
    "Rule",
    "Settings",
    "Step",
    "StepObserver",
    "StepReport",
    "TensorBoard",
    "TrackedStep",
    "Tracker",
    "Trackio",
    "Trainer",
    "VerlConfig",
    "ViewClient",
    "VllmOptions",
    "Wandb",
    "algo",
    "checkpoint_folder",
    "make_tiny_model",
    "replay_training",
    "save_torch_batch",
    "teach_answers",
    "torch_batch",
    "train_recorded",
    "trajectories",
    "verl_batch",
]

_MODULES = {
    "AgentPolicy": "rollouts.batch",
    "Algorithm": "algorithms.interface",
    "AlgorithmContext": "algorithms.context",
    "Assembly": "lightstream.schemas.types",
    "Continuous": "algorithms.continuous.continuous",
    "EnqueueRolloutRequest": "lightstream.schemas.types",
    "Group": "rollouts.groups",
    "InMemoryLightningStore": "lightstream.store_views.stores",
    "KafkaLightningStore": "lightstream.store_views.stores",
    "Learner": "algorithms.continuous.learners",
    "Lesson": "algorithms.continuous.learners",
    "PlannedWindow": "algorithms.continuous.continuous",
    "Reinforce": "algorithms.continuous.learners",
    "RejectionSampling": "algorithms.continuous.learners",
    "Rule": "algorithms.continuous.rules",
    "LLM": "lightstream.schemas.types",
    "LightningStore": "lightstream.schemas.interfaces",
    "LightningStoreClient": "lightstream.store_views.stores.http",
    "LightningStoreServer": "lightstream.store_views.stores.http",
    "MLflow": "run.trackers",
    "NamedResources": "lightstream.schemas.types",
    "Policy": "algorithms.own.policy",
    "PromptTemplate": "lightstream.schemas.types",
    "ProxyLLM": "lightstream.schemas.types",
    "Rollout": "lightstream.schemas.types",
    "RolloutConfig": "lightstream.schemas.types",
    "RolloutCorrection": "engines.verl",
    "SFT": "algorithms.sft",
    "Settings": "lightstream.runtime.settings",
    "Step": "algorithms.own.step",
    "StepObserver": "run.report",
    "StepReport": "run.report",
    "TensorBoard": "run.trackers",
    "TrackedStep": "run.trackers",
    "Tracker": "run.trackers",
    "Trackio": "run.trackers",
    "Trainer": "algorithms.trainer",
    "VERL": "algorithms.verl",
    "VerlConfig": "engines.verl",
    "ViewClient": "lightstream.store_views.client",
    "VllmOptions": "servers.vllm",
    "Wandb": "run.trackers",
    "AsyncViewClient": "lightstream.store_views.client",
    "algo": "algorithms.interface",
    "checkpoint_folder": "run.checkpoint",
    "make_tiny_model": "run.model.tiny_model",
    "teach_answers": "engines.verl",
    "train_recorded": "algorithms.recorded",
    "trajectories": "algorithms.own.consumer",
    "replay_training": "algorithms.replaying",
    "save_torch_batch": "engines.exports",
    "torch_batch": "engines.exports",
    "verl_batch": "engines.exports",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
