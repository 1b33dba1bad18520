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
from ..run.run import Run
from .options import LoopOptions
from .protocols import PolicyServers
from .steps import Steps


def latest(run: Run) -> ResourcesRecord:
    """The newest version.

    Raises:
        TrainingError: there is none.
    """
    if run.resources is None:
        raise TrainingError(f"run {run.run_id!r} has no resources although they were published.")
    return run.resources


def begin(options: LoopOptions, steps: Steps, servers: PolicyServers, write_first: Callable[[Path], None]) -> None:
    """Publish version 0 of a new run. Publish the latest version of another again, if agents would be given another
    model's name or another address now: one of 0.2.0 had no name of its own.

    Args:
        write_first: writes the initial model into an empty folder.

    Raises:
        TrainingError: the disk is full; or the checkpoint of the latest version is gone or was replaced.
    """
    run = steps.run
    if run.resources is None:
        folder = run.checkpoints.write(0, write_first)
        steps.publish(policy_resources(options, steps, servers, 0, folder))
        return
    before = run.resources
    if before.checkpoint_url is None:
        return
    now = policy_resources(options, steps, servers, before.version, checkpoint_of(run, before))
    if before.model == now.model and before.adapters.keys() == now.adapters.keys():
        return
    again = {"created_unix_nano": before.created_unix_nano, "updated_unix_nano": run.now()}
    made_with = before.made_with if before.version == 0 else now.made_with
    steps.publish(now.model_copy(update=again | {"made_with": made_with}))


def checkpoint_of(run: Run, resources: ResourcesRecord) -> Path:
    """The folder of a version's weights.

    Raises:
        TrainingError: it is missing, or was replaced.
    """
    return existing_folder(run.settings, resources.checkpoint_url, resources.resources_id)


def own_policy(options: LoopOptions, run: Run, version: int, policy: str = ALL, *, former_name: str = "") -> OwnPolicy:
    """The names of the calls of one or several policies, while it is of ``version``."""
    return OwnPolicy(
        name=policy or _name(options, run),
        run_id=run.run_id,
        version=version,
        versions_back=options.steps_ahead,
        temperature=options.temperature,
        former_name=former_name,
    )


def _name(options: LoopOptions, run: Run) -> str:
    """The name that the run's versions are published under; that of the options or the run, where none is known."""
    resources = run.resources
    return base_of_model(resources.model if resources else None) or options.served_model or run.run_id


def policy_resources(
    options: LoopOptions, steps: Steps, servers: PolicyServers, version: int, checkpoint: Path
) -> ResourcesRecord:
    """A version of the policy as agents are given it: the model's name, where to call it, and how to sample.

    The name begins with the run's, so that no other run has it, unless ``served_model`` says otherwise.

    With several policies there is one model for each, and the one that they share, which stays at version 0.
    """
    run, address = steps.run, servers.address
    model = f"{options.served_model or run.run_id}@{0 if options.policies else version}"
    adapters = _adapters(options, run, version, checkpoint)
    resources: NamedResources = {options.resource_name: _model(options, run, address, model)}
    resources |= {policy_of_model(name): _model(options, run, address, name) for name in adapters}
    is_served = version == 0 or not options.policies
    return steps.resources_record(
        version, resources, model=model if is_served else None, checkpoint=checkpoint, adapters=adapters
    )


def _adapters(options: LoopOptions, run: Run, version: int, checkpoint: Path) -> dict[str, Path]:
    """Name, as it is served, and folder of each policy; a frozen one stays where the run began."""
    address = run.history.checkpoints.get(0)
    first = checkpoint if address is None else run.folder_of(address)
    return {
        f"{run.run_id}/{name}@{0 if policy.frozen else version}": (first if policy.frozen else checkpoint) / name
        for name, policy in options.policies.items()
    }


def _model(options: LoopOptions, run: Run, address: str, name: str) -> ProxyLLM:
    token = run.settings.proxy_token  # none of the data folder's: whoever may read resources would have it
    validation = options.validation_sampling_parameters
    return ProxyLLM(
        endpoint=f"{address}/seed/{run.seed}/v1",
        model=name,
        api_key=None if token is None else token.get_secret_value(),
        sampling_parameters={"temperature": options.temperature} | dict(options.sampling_parameters),
        validation_sampling_parameters=None if validation is None else dict(validation),
        test_sampling_parameters=({**options.sampling_parameters, "temperature": 0} if options.has_baselines else None),
    )
