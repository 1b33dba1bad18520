"""A rollout that is over, as the first protocol reports it."""

from __future__ import annotations

from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import FINISHED, AttemptedRollout, Rollout, RolloutLegacy, Task

from ._report import final_reward_in, report_in

__all__ = ["completed"]


async def completed(store: LightningStore, rollout_id: str) -> RolloutLegacy | None:
    """What its agent reported, or ``None`` while it is not over.

    Of one that ended otherwise (another kind of Runner, a failure, a cancel) there is the task, the reward if one was
    emitted, and in the metadata ``status`` and the attempt's ``error_type`` and ``error_message``.
    """
    rollout = await store.get_rollout_by_id(rollout_id)
    if rollout is None or rollout.status not in FINISHED:
        return None
    spans = await store.query_spans(rollout_id, "latest")
    if rollout.status == "succeeded" and (report := report_in(spans)) is not None:
        return report
    return RolloutLegacy(
        rollout_id=rollout_id,
        task=_task(rollout),
        final_reward=final_reward_in(spans),
        metadata=_fate(rollout),
    )


def _task(rollout: Rollout) -> Task:
    return Task(
        rollout_id=rollout.rollout_id,
        input=rollout.input,
        mode=rollout.mode,
        resources_id=rollout.resources_id,
        create_time=rollout.start_time,
        metadata=rollout.metadata or {},
    )


def _fate(rollout: Rollout) -> dict[str, str | None]:
    fate: dict[str, str | None] = {"status": rollout.status}
    if isinstance(rollout, AttemptedRollout):
        fate |= {"error_type": rollout.attempt.error_type, "error_message": rollout.attempt.error_message}
    return fate
