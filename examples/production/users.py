"""Simulated users of a shop agent: each asks where a thing is, and some time later gives a thumb.

Their wishes drift: from one phase to the next, some things move to another drawer. The model is not told.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from openai import APIError, AsyncOpenAI

from examples.drawers import DRAWER_OF, DRAWERS, question_of
from lightstream.trainers import KafkaLightningStore, Settings, ViewClient

__all__ = ["POISONER", "Users", "wishes"]

SESSION_CALLS = 4
"""Calls of one session; all of them have the same arm of the release."""
POISONER = "mallory"


def wishes(phase: int) -> dict[str, str]:
    """Thing -> drawer in a phase: each phase moves half of the things by one drawer."""
    found = dict(DRAWER_OF)
    for number, thing in enumerate(found):
        moves = sum(1 for past in range(1, phase + 1) if (number + past) % 2)
        found[thing] = DRAWERS[(DRAWERS.index(found[thing]) + moves) % len(DRAWERS)]
    return found


@dataclass(frozen=True, slots=True)
class Thumb:
    """A thumb that is still to come.

    Attributes:
        due: number of the conversation after which it is given.
        up: as the user gives it; a poisoner gives the opposite of the truth.
    """

    due: int
    rollout_id: str
    attempt_id: str
    user: str
    up: bool


@dataclass(slots=True)
class Users:
    """The traffic of one release.

    Attributes:
        release: name that they ask for as the model.
        late: conversations between an answer and its thumb.
        poisoned: share of the thumbs that a poisoner gives.
        run_id: run of the rollouts; empty: traffic that a learner learns from.
        right: of each conversation in order, whether the answer was right.
    """

    settings: Settings
    store: KafkaLightningStore
    view: ViewClient
    proxy: str
    release: str
    sampling: Mapping[str, Any]
    seed: int = 0
    late: int = 32
    poisoned: float = 0.0
    run_id: str = ""
    right: list[bool] = field(default_factory=list[bool])
    lost: int = 0
    _waiting: deque[Thumb] = field(default_factory=deque[Thumb])

    async def talk(self, conversations: int, phase: int) -> float:
        """Hold so many conversations; returns the share of right answers."""
        client = AsyncOpenAI(base_url=self.proxy, api_key="none", max_retries=2)
        before = len(self.right)
        try:
            for start in range(before, before + conversations, SESSION_CALLS * 4):
                numbers = range(start, min(start + SESSION_CALLS * 4, before + conversations))
                answered = await asyncio.gather(*(self._ask(client, number, phase) for number in numbers))
                self.right.extend(answered)
                await self._give_thumbs()
        finally:
            await client.close()
        return sum(self.right[before:]) / conversations

    async def _ask(self, client: AsyncOpenAI, number: int, phase: int) -> bool:
        rng = random.Random(f"{self.seed}-{self.release}-{number}")
        thing = rng.choice(list(DRAWER_OF))
        is_poisoner = rng.random() < self.poisoned
        user = POISONER if is_poisoner else f"user-{number // SESSION_CALLS}"
        rollout = await self.store.start_rollout(
            {"thing": thing}, mode="train", run_id=self.run_id or None, metadata={"user": user}
        )
        attempt_id = rollout.attempt.attempt_id
        url = f"{self.proxy}/rollout/{rollout.rollout_id}/attempt/{attempt_id}/v1"
        try:
            completion = await client.with_options(base_url=url).chat.completions.create(
                model=self.release,
                messages=[{"role": "user", "content": question_of({"thing": thing})}],
                extra_headers={"x-lightstream-session": f"session-{number // SESSION_CALLS}"},
                **self.sampling,
            )
            said = (completion.choices[0].message.content or "")[:1]
        except Exception:
            self.lost += 1
            raise
        finally:
            await self.store.update_attempt(rollout.rollout_id, attempt_id, status="succeeded")
        is_right = said == wishes(phase)[thing]
        self._waiting.append(
            Thumb(number + self.late, rollout.rollout_id, attempt_id, user, is_right is not is_poisoner)
        )
        return is_right

    async def wait_until_served(self) -> None:
        """Wait until the model server has the release's model: the learner makes the first version."""
        client = AsyncOpenAI(base_url=f"{self.proxy}/v1", api_key="none", max_retries=0)
        try:
            while True:
                with suppress(APIError):
                    await client.chat.completions.create(
                        model=self.release, messages=[{"role": "user", "content": "cup?"}], **self.sampling
                    )
                    return
                await asyncio.sleep(0.5)
        finally:
            await client.close()

    async def give_all_thumbs(self) -> None:
        """Give those that are still to come."""
        await self._give_thumbs(everything=True)

    async def _give_thumbs(self, *, everything: bool = False) -> None:
        due = [thumb for thumb in self._waiting if everything or thumb.due <= len(self.right)]
        for thumb in due:
            self._waiting.remove(thumb)
        if due:
            await asyncio.to_thread(self.view.feedback, [self._score(thumb) for thumb in due])

    def _score(self, thumb: Thumb) -> dict[str, Any]:
        return {
            "rollout_id": thumb.rollout_id,
            "name": "thumb",
            "score": "up" if thumb.up else "down",
            "key": f"thumb-{thumb.rollout_id}",
        }
