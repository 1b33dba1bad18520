"""The agent: a model picks a meeting room. What it has to look at, the prompt has to say."""

from __future__ import annotations

import json
import random
from typing import Any, TypedDict

from openai import OpenAI

import lightstream.agl as agl

__all__ = ["EQUIPMENT", "MODEL", "Request", "Room", "RoomTask", "fits", "sample_tasks", "select_room"]

MODEL = "scripted"
EQUIPMENT = ("projector", "whiteboard", "phone")
ROOMS = 6


class Request(TypedDict):
    """A meeting."""

    people: int
    needs: str
    hour: int


class Room(TypedDict):
    """A room, and the hours at which it is free."""

    name: str
    seats: int
    equipment: list[str]
    free: list[int]


class RoomTask(TypedDict):
    """A meeting, the rooms, and the only one that will do."""

    request: Request
    rooms: list[Room]
    expected: str


def fits(room: Room, request: Request) -> dict[str, bool]:
    """Whether a room will do, by each criterion."""
    return {
        "capacity": room["seats"] >= request["people"],
        "equipment": request["needs"] in room["equipment"],
        "availability": request["hour"] in room["free"],
    }


def sample_tasks(count: int, seed: int) -> list[RoomTask]:
    """Tasks in each of which one room meets all criteria, and is none of the first two."""
    chance = random.Random(seed)
    tasks: list[RoomTask] = []
    while len(tasks) < count:
        request = Request(people=chance.randint(2, 12), needs=chance.choice(EQUIPMENT), hour=chance.randint(9, 16))
        rooms = [
            Room(
                name=name,
                seats=chance.choice((4, 8, 14)),
                equipment=sorted(chance.sample(EQUIPMENT, 2)),
                free=sorted(chance.sample(range(9, 17), 5)),
            )
            for name in "ABCDEF"[:ROOMS]
        ]
        good = [room["name"] for room in rooms if all(fits(room, request).values())]
        if len(good) == 1 and good[0] not in "AB":
            tasks.append(RoomTask(request=request, rooms=rooms, expected=good[0]))
    return tasks


@agl.rollout
def select_room(task: RoomTask, prompt_template: agl.PromptTemplate) -> float:
    """One call, to the endpoint that the environment names; returns 1 for the right room."""
    asked: dict[str, Any] = {"request": task["request"], "rooms": task["rooms"]}
    completion = OpenAI().chat.completions.create(
        model=MODEL,
        messages=[
            {"role": "system", "content": prompt_template.format(rooms=len(task["rooms"]))},
            {"role": "user", "content": json.dumps(asked)},
        ],
    )
    return float((completion.choices[0].message.content or "").strip() == task["expected"])
