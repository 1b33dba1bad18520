"""Ids that stores make up."""

from __future__ import annotations

import subprocess
import sys

from lightstream.store_views.stores.identity import new_id, repeatable

FORKS = """
import os
from lightstream.store_views.stores.identity import new_id

new_id("event", 32)
reading, writing = os.pipe()
if os.fork() == 0:
    os.write(writing, new_id("event", 32).encode())
    os._exit(0)
print(new_id("event", 32), os.read(reading, 32).decode())
os.wait()
"""


def test_no_id_comes_twice() -> None:
    ids = [new_id("event", 12) for _ in range(10_000)]
    assert len(set(ids)) == len(ids)
    assert all(len(made) == 12 and int(made, 16) >= 0 for made in ids)


def test_a_forked_child_has_ids_of_its_own() -> None:
    printed = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, check=True, timeout=300)
    of_parent, of_child = printed.stdout.split()
    assert of_parent != of_child


def test_the_same_seed_gives_the_same_ids_for_the_same_purposes() -> None:
    def made() -> list[str]:
        with repeatable("one write"):
            return [new_id("rollout", 20), new_id("event", 12), new_id("event", 12)]

    first = made()
    assert made() == first
    assert len(set(first)) == 3
