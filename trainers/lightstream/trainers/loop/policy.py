"""The policy of a run: its versions as resources, and their checkpoints."""

from __future__ import annotations

from pathlib import Path

from lightstream.schemas.errors import TrainingError
from lightstream.schemas.policy_names import base_of_model
from lightstream.schemas.records import ResourcesRecord
from lightstream.schemas.types import NamedResources, ProxyLLM

from ..algorithm import AlgorithmContext
from ..batch import ALL, OwnPolicy
from .options import LoopOptions

__all__ = ["checkpoint_of", "latest", "own_policy", "policy_resources"]


def latest(context: AlgorithmContext) -> ResourcesRecord:
    """The newest version.

    Raises:
        TrainingError: there is none.
    """
    if context.resources is None:
        raise TrainingError(f"run {context.run_id!r} has no resources although they were published.")
    return context.resources


def checkpoint_of(resources: ResourcesRecord) -> Path:
    """The folder of a version's weights.

    Raises:
        TrainingError: it is missing.
    """
    folder = Path(resources.checkpoint_url or "")
    if resources.checkpoint_url is None or not folder.is_dir():
        raise TrainingError(
            f"the checkpoint {resources.checkpoint_url} of {resources.resources_id!r} is gone.",
            next_step="Restore the folder, or start a new run with another run_id and trainer_id.",
        )
    return folder


def own_policy(options: LoopOptions, context: AlgorithmContext, version: int, policy: str = ALL) -> OwnPolicy:
    """What the calls of a policy, of several or of the one, are known by while it is of ``version``."""
    return OwnPolicy(
        name=policy or _name(options, context),
        run_id=context.run_id,
        version=version,
        versions_back=options.steps_ahead,
        temperature=options.temperature,
    )


def _name(options: LoopOptions, context: AlgorithmContext) -> str:
    """The name that the run's versions are published under; that of the options, where none is known."""
    resources = context.resources
    return base_of_model(resources.model if resources else None) or options.served_model


def policy_resources(
    options: LoopOptions, context: AlgorithmContext, version: int, checkpoint: Path
) -> ResourcesRecord:
    """A version of the policy as agents are given it: the model's name, where to call it, and how to sample.

    With several policies there is one model for each, and the one that they share, which stays at version 0.
    """
    model = f"{options.served_model}@{0 if options.policies else version}"
    adapters = _adapters(options, context, version, checkpoint)
    resources: NamedResources = {options.resource_name: _model(options, context, model)}
    resources |= {name.rpartition("@")[0]: _model(options, context, name) for name in adapters}
    is_served = version == 0 or not options.policies
    return context.resources_record(
        version, resources, model=model if is_served else None, checkpoint=checkpoint, adapters=adapters
    )


def _adapters(options: LoopOptions, context: AlgorithmContext, version: int, checkpoint: Path) -> dict[str, str]:
    """Name, as it is served, and folder of each policy; a frozen one stays where the run began."""
    first = context.history.checkpoints.get(0, str(checkpoint))
    return {
        f"{name}@{0 if policy.frozen else version}": str((Path(first) if policy.frozen else checkpoint) / name)
        for name, policy in options.policies.items()
    }


def _model(options: LoopOptions, context: AlgorithmContext, name: str) -> ProxyLLM:
    token = context.settings.proxy_token
    validation = options.validation_sampling_parameters
    return ProxyLLM(
        endpoint=f"{context.servers.address}/seed/{context.seed}/v1",
        model=name,
        api_key=None if token is None else token.get_secret_value(),
        sampling_parameters={"temperature": options.temperature} | dict(options.sampling_parameters),
        validation_sampling_parameters=None if validation is None else dict(validation),
        test_sampling_parameters=({**options.sampling_parameters, "temperature": 0} if options.has_baselines else None),
    )
