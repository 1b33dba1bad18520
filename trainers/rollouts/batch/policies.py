"""Several policies in one system of agents: which call is whose, and the groups of each policy by themselves.

A call belongs to the policy of its agent, if that policy's adapter sampled it. A policy's group has the rollouts in
which it acted, with its own calls alone; so advantages compare nothing but these.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lightstream.schemas.assembly_rules import checked_expression
from lightstream.schemas.errors import SettingsError, TrainingError
from lightstream.schemas.policy_names import policy_of_model
from lightstream.schemas.records import Trajectory, TripletRecord

from ..groups import Group
from .exclusions import Exclusion
from .rows import BatchRows
from .scores import rollout_score

ALL = ""
"""Name of the one policy of a run that has no others."""

NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,63}")
"""It names a resource, a folder, and, before ``@``, a model."""


@dataclass(frozen=True, kw_only=True)
class AgentPolicy:
    """One policy of several that share a model: a LoRA adapter, and the agents that act by it.

    Attributes:
        agents: regular expression of their names, searched for as in ``trained_agents``; ``None``: whoever calls the
            policy's model.
        reward: name of the reward that it is scored by (``emit_reward({...})``); ``None``: the rollout's, else the sum
            of the rewards that are linked to the policy's own calls.
        frozen: it is served, and never trained.
        adapter: folder of an adapter in peft's format that it begins with; ``None``: one that changes nothing yet.
        lora_rank, lora_alpha: of the adapter.
        learning_rate: ``None``: that of the run.

    Raises:
        SettingsError: a value is none of these.
    """

    agents: str | None = None
    reward: str | None = None
    frozen: bool = False
    adapter: str | Path | None = None
    lora_rank: int = 8
    lora_alpha: int = 16
    learning_rate: float | None = None

    def __post_init__(self) -> None:
        if self.lora_rank < 1 or self.lora_alpha < 1:
            raise SettingsError(
                f"a policy's lora_rank is {self.lora_rank}, its lora_alpha {self.lora_alpha}; at least 1 is needed."
            )
        if self.learning_rate is not None and not 0 < self.learning_rate < float("inf"):
            raise SettingsError(f"a policy's learning_rate is {self.learning_rate}; a finite number above 0 is needed.")
        if self.agents is not None:
            try:
                checked_expression(self.agents)
            except ValueError as error:
                raise SettingsError(f"a policy's agents are {self.agents!r}: {error}.") from error

    def as_json(self) -> dict[str, Any]:
        """Its fields, as JSON has them."""
        return asdict(self) | {"adapter": None if self.adapter is None else str(self.adapter)}


def check_policies(policies: Mapping[str, AgentPolicy]) -> None:
    """Refuse policies that cannot be trained together.

    Raises:
        SettingsError: a name cannot be one, none is trained, or two have the same agents.
    """
    for name in policies:
        if NAME.fullmatch(name) is None:
            raise SettingsError(
                f"VERL's policies have the name {name!r:.100}.",
                next_step="Use 1 to 64 letters (a to z), digits, dots, dashes, underscores; begin with a letter.",
            )
    if policies and not trained(policies):
        raise SettingsError("each of VERL's policies is frozen: there is nothing to train.")
    of_agents: dict[str, str] = {}
    for name, policy in policies.items():
        if policy.agents is not None:
            other = of_agents.setdefault(policy.agents, name)
            if other != name:
                raise SettingsError(
                    f"VERL's policies {other!r} and {name!r} have the same agents, {policy.agents!r}.",
                    next_step="An agent acts by one policy.",
                )


def trained(policies: Mapping[str, AgentPolicy]) -> dict[str, AgentPolicy]:
    """The trained policies, by name."""
    return {name: policy for name, policy in policies.items() if not policy.frozen}


def check_agents(groups: Iterable[Group], policies: Mapping[str, AgentPolicy]) -> None:
    """Refuse to train where a policy's agents are not among the agents that made calls.

    Nothing is refused where there is no call at all.

    Raises:
        TrainingError: names the policy, and the agents that there are; or two policies have the same agent.
    """
    calls = [triplet for group in groups for t in group.trajectories for triplet in t.triplets]
    for name, policy in trained(policies).items():
        if not calls or any(_is_of(call, name, policy) for call in calls):
            continue
        agents = ", ".join(
            sorted({repr(call.agent_name) if call.agent_name else "one without a name" for call in calls})
        )
        models = ", ".join(sorted({repr(call.model) for call in calls}))
        if policy.agents is None:
            raise TrainingError(
                f"no call was sampled by policy {name!r}; there are calls of {models}.",
                next_step=f"Let its agents call the model of the resource {name!r}.",
            )
        raise TrainingError(
            f"no call is of an agent that matches {policy.agents!r}, of policy {name!r}; the agents are {agents}.",
            next_step="Nothing was trained: correct `agents`, and the same command goes on. Agents are named by their "
            "spans (`agent.name`, `gen_ai.agent.name`); without `agents`, a call belongs to the policy that it calls.",
        )


@dataclass(frozen=True, slots=True)
class PolicyGroups:
    """The groups of a step, as each policy that is trained has them.

    Attributes:
        groups: by the policy's name; of a run without others, all are of :data:`ALL`.
        owners: (rollout_id, attempt_id) -> of each call, the policy that it trains, or why it trains none.
    """

    groups: dict[str, list[Group]]
    owners: dict[tuple[str, str], list[str | Exclusion]]

    def account(self, parts: Mapping[str, BatchRows]) -> BatchRows:
        """All rows of all policies, and the fate of every call, each counted once.

        Args:
            parts: the rows that were made of :attr:`groups`.
        """
        if list(parts) == [ALL]:
            return parts[ALL]
        account = BatchRows()
        for part in parts.values():
            account.add(part)
        del account.excluded[Exclusion.NO_CALLS]  # every policy has such a rollout in its group
        for key, of_calls in self.owners.items():
            account.triplets_used.setdefault(key, 0)
            others = Counter(owner for owner in of_calls if isinstance(owner, Exclusion))
            if not of_calls:
                others[Exclusion.NO_CALLS] = 1
            own = {reason: count for reason, count in account.not_trained.get(key, {}).items() if of_calls}
            account.not_trained[key] = own | {reason.value: count for reason, count in others.items()}
            account.excluded += others
        return account


def split_groups(groups: Sequence[Group], policies: Mapping[str, AgentPolicy]) -> PolicyGroups:
    """The groups of each policy that is trained. A rollout in which nobody made a call is in each policy's group.

    Calls of a policy are numbered anew within a rollout, from 0.

    Raises:
        TrainingError: an agent belongs to two policies.
    """
    if not policies:
        return PolicyGroups({ALL: list(groups)}, {})
    owners = {
        (t.rollout_id, t.attempt_id): [_owner(call, policies) for call in t.triplets]
        for group in groups
        for t in group.trajectories
    }
    of_policy = {
        name: [part for group in groups if (part := _of_policy(group, name, policy, owners)).trajectories]
        for name, policy in trained(policies).items()
    }
    return PolicyGroups(of_policy, owners)


def _of_policy(
    group: Group, name: str, policy: AgentPolicy, owners: Mapping[tuple[str, str], list[str | Exclusion]]
) -> Group:
    """The group as a policy has it: rollouts in which it acted, and those in which nobody did, with its calls alone."""

    others = sum(
        bool(t.triplets) and name not in owners[t.rollout_id, t.attempt_id] for t in group.trajectories
    )  # in which it did not act

    def members() -> Iterable[Trajectory]:
        for t in group.trajectories:
            own = [c for c, owner in zip(t.triplets, owners[t.rollout_id, t.attempt_id], strict=True) if owner == name]
            if own or not t.triplets:
                places = {call.call_index: place for place, call in enumerate(own)}
                yield t.model_copy(
                    update={
                        "group_size": t.group_size - others,
                        "reward": t.reward if policy.reward is None else rollout_score(t, policy.reward),
                        "rewards": [
                            r
                            for r in t.rewards
                            if r.call_index is None or (policy.reward is None and r.call_index in places)
                        ],
                        "triplets": [c.model_copy(update={"call_index": places[c.call_index]}) for c in own],
                    }
                )

    return Group(group.group_id, tuple(members()))


def _owner(call: TripletRecord, policies: Mapping[str, AgentPolicy]) -> str | Exclusion:
    """The policy that a call trains, or why it trains none."""
    names = [name for name, policy in policies.items() if _is_of(call, name, policy)]
    if len(names) > 1:
        raise TrainingError(
            f"agent {call.agent_name!r} belongs to {len(names)} policies: {', '.join(names)}.",
            next_step="Let `agents` match each agent once: nothing was trained, and the same command goes on.",
        )
    if not names or policies[names[0]].frozen:
        return Exclusion.FROZEN_AGENT
    return names[0] if _sampled_by(call) == names[0] else Exclusion.OTHER_POLICY


def _is_of(call: TripletRecord, name: str, policy: AgentPolicy) -> bool:
    if policy.agents is None:
        return _sampled_by(call) == name
    return call.agent_name is not None and re.search(policy.agents, call.agent_name) is not None


def _sampled_by(call: TripletRecord) -> str:
    """The policy in the name of the model that answered, ``<run>/<policy>@<version>``."""
    return policy_of_model(call.model)
