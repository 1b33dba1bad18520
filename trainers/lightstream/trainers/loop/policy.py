"""The policy of a run: its versions as resources, and their checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lightstream.schemas.errors import TrainingError
from lightstream.schemas.policy_names import base_of_model, policy_of_model
from lightstream.schemas.records import ResourcesRecord
from lightstream.schemas.types import NamedResources, ProxyLLM

from ..rollouts.batch import ALL, OwnPolicy
from ..run.checkpoint import existing_folder
from .context import AlgorithmContext
from .options import LoopOptions

__all__ = ["begin", "checkpoint_of", "latest", "own_policy", "policy_resources"]


def latest(context: AlgorithmContext) -> ResourcesRecord:
    """The newest version.

    Raises:
        TrainingError: there is none.
    """
    if context.resources is None:
        raise TrainingError(f"run {context.run_id!r} has no resources although they were published.")
    return context.resources


def begin(options: LoopOptions, context: AlgorithmContext, write_first: Callable[[Path], None]) -> None:
    """Publish version 0 of a new run. Publish the latest version of another again, if agents would be given another
    model's name or another address now: one of 0.2.0 had no name of its own.

    Args:
        write_first: writes the initial model into an empty folder.

    Raises:
        TrainingError: the disk is full; or the checkpoint of the latest version is gone or was replaced.
    """
    if context.resources is None:
        folder = context.checkpoints.write(0, write_first)
        context.publish_resources(policy_resources(options, context, 0, folder))
        return
    before = context.resources
    if before.checkpoint_url is None:
        return
    now = policy_resources(options, context, before.version, checkpoint_of(context, before))
    if before.model == now.model and before.adapters.keys() == now.adapters.keys():
        return
    again = {"created_unix_nano": before.created_unix_nano, "updated_unix_nano": context.now()}
    made_with = before.made_with if before.version == 0 else now.made_with
    context.publish_resources(now.model_copy(update=again | {"made_with": made_with}))


def checkpoint_of(context: AlgorithmContext, resources: ResourcesRecord) -> Path:
    """The folder of a version's weights.

    Raises:
        TrainingError: it is missing, or was replaced.
    """
    return existing_folder(context.settings, resources.checkpoint_url, resources.resources_id)


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
    """The name that the run's versions are published under; that of the options or the run, where none is known."""
    resources = context.resources
    return base_of_model(resources.model if resources else None) or options.served_model or context.run_id


def policy_resources(
    options: LoopOptions, context: AlgorithmContext, version: int, checkpoint: Path
) -> ResourcesRecord:
    """A version of the policy as agents are given it: the model's name, where to call it, and how to sample.

    The name begins with the run's, so that no other run has it, unless ``served_model`` says otherwise.

    With several policies there is one model for each, and the one that they share, which stays at version 0.
    """
    model = f"{options.served_model or context.run_id}@{0 if options.policies else version}"
    adapters = _adapters(options, context, version, checkpoint)
    resources: NamedResources = {options.resource_name: _model(options, context, model)}
    resources |= {policy_of_model(name): _model(options, context, name) for name in adapters}
    is_served = version == 0 or not options.policies
    return context.resources_record(
        version, resources, model=model if is_served else None, checkpoint=checkpoint, adapters=adapters
    )


def _adapters(options: LoopOptions, context: AlgorithmContext, version: int, checkpoint: Path) -> dict[str, Path]:
    """Name, as it is served, and folder of each policy; a frozen one stays where the run began."""
    address = context.history.checkpoints.get(0)
    first = checkpoint if address is None else context.folder_of(address)
    return {
        f"{context.run_id}/{name}@{0 if policy.frozen else version}": (first if policy.frozen else checkpoint) / name
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
