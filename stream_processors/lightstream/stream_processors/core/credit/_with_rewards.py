"""Other rewards for a trajectory that is assembled already."""

from __future__ import annotations

from collections.abc import Mapping

from lightstream.schemas.records import Drop, DropReason, RewardMatch, RewardRecord, Trajectory

from ._rules import CreditStep, assign

__all__ = ["with_rewards"]


def with_rewards(
    trajectory: Trajectory, whole: float | None, by_call: Mapping[int, float], credit: str, name: str
) -> Trajectory:
    """The trajectory with these rewards in place of its own, and what credit makes of them.

    Args:
        whole: reward of the whole trajectory; ``None`` is missing.
        by_call: ``call_index`` -> the call's own reward.
        credit: name of the credit rule.
        name: what the rewards are recorded under.

    Raises:
        SettingsError: there is no such credit rule.
    """
    triplets = trajectory.triplets
    steps = [CreditStep(kept=True, reward=by_call.get(t.call_index), agent_name=t.agent_name) for t in triplets]
    values, problem = assign(credit, steps, whole)
    records = [RewardRecord(name=name, value=whole, span_id="")] if whole is not None else []
    records += [
        RewardRecord(name=name, value=value, span_id="", call_index=call, match=RewardMatch.LINK)
        for call, value in sorted(by_call.items())
    ]
    drops = trajectory.drops
    if problem is not None:
        drops = [*drops, Drop(span_id="", is_llm_call=False, reason=DropReason.BAD_REWARD, detail=problem)]
    return trajectory.model_copy(
        update={
            "reward": whole,
            "rewards": records,
            "credit": credit,
            "triplets": [
                triplet.model_copy(update={"reward": value}) for triplet, value in zip(triplets, values, strict=True)
            ],
            "drops": drops,
        }
    )
