"""Which versions saw a user: by training on the user's rollouts, or by their rewards alone."""

from __future__ import annotations

import json
from pathlib import Path

from lightstream.schemas.examples import example_of
from lightstream.schemas.records import ConsumedTrajectory, ResourcesRecord, RolloutState, TrainingStep
from lightstream.store_views.queries import named_query

from .log_file import open_log_file

NOT_TRAINED = {"trained": {}, "counted": {"no_logprobs": 1}, "unseen": {"no_consent": 1}, "late": {"late": 1}}


def of_user(user: str) -> RolloutState:
    state = example_of(RolloutState)
    spec = state.rollout.model_copy(update={"rollout_id": user, "metadata_json": json.dumps({"user": user})})
    return state.model_copy(update={"rollout": spec})


def step_of(number: int, consumed: dict[str, dict[str, int]]) -> list[TrainingStep | ResourcesRecord]:
    name = f"shop-v{number}"
    records = [
        ConsumedTrajectory(
            rollout_id=user,
            attempt_id="a",
            revision=0,
            group_id=user,
            triplet_count=0 if reasons else 1,
            not_trained=reasons,
        )
        for user, reasons in consumed.items()
    ]
    of_run = {"run_id": "shop", "resources_id": name}
    return [
        example_of(ResourcesRecord).model_copy(update=of_run | {"version": number}),
        example_of(TrainingStep).model_copy(update=of_run | {"step": number, "consumed": records}),
    ]


def test_a_version_saw_a_user_whose_reward_alone_counted(tmp_path: Path) -> None:
    with open_log_file(tmp_path / "view") as log:
        log.write(*map(of_user, NOT_TRAINED), *step_of(1, {}), *step_of(2, NOT_TRAINED), *step_of(3, {}))
        found = {}
        for user in NOT_TRAINED:
            sql, values = named_query(":versions-that-saw").statement({"key": "user", "value": user})
            rows = log.dicts(sql, values)
            found[user] = [(row["version"], row["rollouts"], row["by_reward_alone"]) for row in rows]
    assert found == {"trained": [(2, 1, 0), (3, 1, 0)], "counted": [(2, 1, 1), (3, 1, 1)], "unseen": [], "late": []}
