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

    from .algorithm import Algorithm, AlgorithmContext, algo
    from .batch import AgentPolicy
    from .checkpoint import checkpoint_folder
    from .consumer import Step, trajectories
    from .groups import Group
    from .primitives import Policy
    from .recorded import train_recorded
    from .report import StepObserver, StepReport
    from .sft import SFT
    from .tiny_model import make_tiny_model
    from .trackers import MLflow, TensorBoard, Tracker, Trackio, Wandb
    from .trainer import Trainer
    from .verl_in_process import VERL, RolloutCorrection, VerlConfig, teach_answers
    from .vllm_servers import VllmOptions

__all__ = [
    "LLM",
    "SFT",
    "VERL",
    "AgentPolicy",
    "Algorithm",
    "AlgorithmContext",
    "Assembly",
    "AsyncViewClient",
    "EnqueueRolloutRequest",
    "Group",
    "InMemoryLightningStore",
    "KafkaLightningStore",
    "LightningStore",
    "LightningStoreClient",
    "LightningStoreServer",
    "MLflow",
    "NamedResources",
    "Policy",
    "PromptTemplate",
    "ProxyLLM",
    "Rollout",
    "RolloutConfig",
    "RolloutCorrection",
    "Settings",
    "Step",
    "StepObserver",
    "StepReport",
    "TensorBoard",
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
    "teach_answers",
    "train_recorded",
    "trajectories",
]

_MODULES = {
    "AgentPolicy": "batch",
    "Algorithm": "algorithm",
    "AlgorithmContext": "algorithm",
    "Assembly": "lightstream.schemas.types",
    "EnqueueRolloutRequest": "lightstream.schemas.types",
    "Group": "groups",
    "InMemoryLightningStore": "lightstream.store_views.stores",
    "KafkaLightningStore": "lightstream.store_views.stores",
    "LLM": "lightstream.schemas.types",
    "LightningStore": "lightstream.schemas.interfaces",
    "LightningStoreClient": "lightstream.store_views.stores.http",
    "LightningStoreServer": "lightstream.store_views.stores.http",
    "MLflow": "trackers",
    "NamedResources": "lightstream.schemas.types",
    "Policy": "primitives",
    "PromptTemplate": "lightstream.schemas.types",
    "ProxyLLM": "lightstream.schemas.types",
    "Rollout": "lightstream.schemas.types",
    "RolloutConfig": "lightstream.schemas.types",
    "RolloutCorrection": "verl_in_process",
    "SFT": "sft",
    "Settings": "lightstream.runtime.settings",
    "Step": "consumer",
    "StepObserver": "report",
    "StepReport": "report",
    "TensorBoard": "trackers",
    "Tracker": "trackers",
    "Trackio": "trackers",
    "Trainer": "trainer",
    "VERL": "verl_in_process",
    "VerlConfig": "verl_in_process",
    "ViewClient": "lightstream.store_views.client",
    "VllmOptions": "vllm_servers",
    "Wandb": "trackers",
    "AsyncViewClient": "lightstream.store_views.client",
    "algo": "algorithm",
    "checkpoint_folder": "checkpoint",
    "make_tiny_model": "tiny_model",
    "teach_answers": "verl_in_process",
    "train_recorded": "recorded",
    "trajectories": "consumer",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
