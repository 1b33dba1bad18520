"""An agent whose module holds a database and a client open to the end, as many do."""

from __future__ import annotations

import aiohttp
import duckdb

from lightstream.producers import rollout

DATABASE = duckdb.connect(":memory:")
CLIENTS: list[aiohttp.ClientSession] = []


@rollout
async def held_answer(task: str) -> float:
    """Count the task's letters in SQL."""
    CLIENTS.append(aiohttp.ClientSession())
    (row,) = DATABASE.execute("SELECT length(?)", [task]).fetchall()
    return float(row[0])
