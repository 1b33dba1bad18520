"""Rewards by a reward model: a frozen model that says one value of a conversation, as verl's discriminative ones."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightstream.schemas.errors import TrainingError
from lightstream.schemas.packing import unpack_int32
from lightstream.schemas.records import RewardRecord, Trajectory
from lightstream.schemas.types import EnqueueRolloutRequest

from ...rollouts.groups import Group, SkippedGroups
from .runtime import choose_device

if TYPE_CHECKING:
    from ...rollouts.protocol import GroupSource

REWARD_MODEL = "reward_model"
"""Name of its reward among those of a trajectory."""


class RewardModel:
    """A sequence classifier of one label, with the policy's vocabulary: it reads token ids as they were sampled.

    Args:
        folder: folder (or name) of the reward model.
        policy: folder (or name) of the model that is trained.
        device, dtype: as of ``VerlConfig``.

    Raises:
        TrainingError: it is no classifier of one label, lacks weights, or has another vocabulary than the policy.
    """

    def __init__(self, folder: str | Path, policy: str | Path, *, device: str = "auto", dtype: str = "float32") -> None:
        import torch

        _check_vocabulary(folder, policy)
        self._device = choose_device(device)
        self._model = _load(folder, getattr(torch, dtype)).to(self._device).eval()
        self._longest = getattr(self._model.config, "max_position_embeddings", None)

    def score(self, trajectory: Trajectory) -> float | None:
        """The value of the last call's prompt and answer; ``None`` without a call, or where they are too long.

        A rollout is computed alone: its score does not depend on what else is scored.
        """
        import torch

        if not trajectory.triplets:
            return None
        call = trajectory.triplets[-1]
        ids = [*unpack_int32(call.prompt_token_ids), *unpack_int32(call.response_token_ids)]
        if not ids or (self._longest is not None and len(ids) > self._longest):
            return None
        with torch.inference_mode():
            logits: Any = self._model(input_ids=torch.tensor([ids], device=self._device)).logits
        return float(logits[0, 0])


class ScoredGroups:
    """A source whose groups have a reward model's scores as their rewards.

    The score is the reward of the rollout. What the agent said stays among its rewards, by name, but for rewards of
    single calls; the score is there as ``reward_model``, so that dimensions can weigh both.
    """

    def __init__(self, source: GroupSource, model: RewardModel) -> None:
        self._source = source
        self._model = model

    def groups(
        self, group_ids: Collection[str], *, least: int | None = None, wait_s: float | None = None
    ) -> Iterator[Group]:
        """The groups of the source, scored."""
        return map(self._scored, self._source.groups(group_ids, least=least, wait_s=wait_s))

    def reread(
        self, low_water: Mapping[int, int], identities: Collection[tuple[str, str, int]]
    ) -> dict[tuple[str, str, int], Trajectory]:
        """The groups of the source, scored again: to the bit, on the same machine."""
        return {name: self._with_score(t) for name, t in self._source.reread(low_water, identities).items()}

    def validation_groups(self, group_ids: Collection[str]) -> list[Group]:
        """The groups of the source, scored."""
        return [self._scored(group) for group in self._source.validation_groups(group_ids)]

    def seek(self, low_water: Mapping[int, int]) -> None:
        """As of the source."""
        self._source.seek(low_water)

    def ask(self, requests: Sequence[EnqueueRolloutRequest]) -> None:
        """As of the source."""
        self._source.ask(requests)

    def give_up(self, group_ids: Collection[str]) -> None:
        """As of the source."""
        self._source.give_up(group_ids)

    def take_skipped(self) -> SkippedGroups:
        """The skipped groups of the source: none is trained on or scored."""
        return self._source.take_skipped()

    def low_water(self) -> dict[int, int]:
        """As of the source."""
        return self._source.low_water()

    def metrics(self) -> dict[str, float]:
        """As of the source."""
        return self._source.metrics()

    @property
    def skipped(self) -> frozenset[str]:
        """As of the source."""
        return self._source.skipped

    @property
    def limit_s(self) -> float:
        """As of the source."""
        return self._source.limit_s

    @property
    def consumer_group(self) -> object:
        """As of the source."""
        return self._source.consumer_group

    def _scored(self, group: Group) -> Group:
        return Group(group.group_id, tuple(self._with_score(t) for t in group.trajectories))

    def _with_score(self, trajectory: Trajectory) -> Trajectory:
        score = self._model.score(trajectory)
        rewards = [r for r in trajectory.rewards if r.call_index is None and r.name != REWARD_MODEL]
        if score is not None:
            rewards.append(RewardRecord(name=REWARD_MODEL, value=score, span_id=""))
        return trajectory.model_copy(update={"reward": score, "rewards": rewards})


def _check_vocabulary(folder: str | Path, policy: str | Path) -> None:
    from transformers import AutoTokenizer

    load: Any = AutoTokenizer.from_pretrained
    known: dict[str, int] = load(folder).get_vocab()
    of_policy: dict[str, int] = load(policy).get_vocab()
    differing = [token for token, number in of_policy.items() if known.get(token) != number]
    if differing:
        raise TrainingError(
            f"the reward model {str(folder)!r} has another vocabulary than {str(policy)!r}: {len(differing)} tokens of "
            f"the policy's have other numbers there, or none ({', '.join(map(repr, sorted(differing)[:3]))} …).",
            next_step="Take a reward model of the policy's family, or have the agent ask one and return its score.",
        )


def _load(folder: str | Path, dtype: Any) -> Any:
    from transformers import AutoModelForSequenceClassification
    from transformers.utils import logging as transformers_logging

    load: Any = AutoModelForSequenceClassification.from_pretrained
    untyped_logging: Any = transformers_logging
    verbosity = untyped_logging.get_verbosity()
    untyped_logging.set_verbosity_error()  # it would tell of weights that are lacking
    try:
        model, found = load(folder, dtype=dtype, output_loading_info=True)
    except ValueError as error:  # no class of this kind
        raise TrainingError(
            f"transformers has no model that classifies a sequence of the kind of {str(folder)!r}: {error}."
        ) from error
    finally:
        untyped_logging.set_verbosity(verbosity)
    lacking = sorted(found["missing_keys"])
    if lacking or model.config.num_labels != 1:
        fault = f"lacks {', '.join(lacking[:3])}" if lacking else f"has {model.config.num_labels} labels"
        raise TrainingError(
            f"{str(folder)!r} is no reward model: it {fault}.",
            next_step="Name a folder that `AutoModelForSequenceClassification(…, num_labels=1).save_pretrained` wrote.",
        )
    model.config.pad_token_id = None  # the last token is read, whatever it is: rollouts are computed alone
    return model
