"""``add_resources``, ``update_resources``, ``query_resources``, ``get_resources_by_id``, ``get_latest_resources``."""

from __future__ import annotations

import time
from typing import Any

import pytest

from lightstream.schemas.errors import StoreError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import LLM, Artefact, NamedResources, PromptTemplate, ProxyLLM

from .support import under_way, unique

ALL: NamedResources = {
    "llm": LLM(endpoint="http://x/v1", model="m", sampling_parameters={"temperature": 0.5}),
    "proxy": ProxyLLM(endpoint="http://y/v1", model="m@2", api_key="k"),
    "prompt": PromptTemplate(template="{{ x }}", engine="jinja"),
    "adapter": Artefact(url="/weights/adapter", sha256="0" * 64, size_bytes=10**12),
}


async def test_add_resources_makes_the_latest(store: LightningStore) -> None:
    before = time.time()
    first = await store.add_resources(ALL)
    assert (first.resources, first.version) == (ALL, 1)
    assert before <= first.create_time == first.update_time <= time.time()
    assert await store.get_latest_resources() == first
    second = await store.add_resources({})
    assert second.resources_id != first.resources_id
    assert await store.get_latest_resources() == second
    assert await store.get_resources_by_id(first.resources_id) == first


async def test_update_resources_replaces_them(store: LightningStore) -> None:
    first = await store.add_resources(ALL)
    await store.add_resources({})
    after = await store.update_resources(first.resources_id, {"prompt": ALL["prompt"]})
    assert (after.version, after.create_time, after.resources) == (2, first.create_time, {"prompt": ALL["prompt"]})
    assert after.update_time >= first.update_time
    assert await store.get_latest_resources() == after
    assert await store.get_resources_by_id(first.resources_id) == after


async def test_update_resources_of_a_new_id_adds_them(store: LightningStore) -> None:
    name = unique("named/☃")
    made = await store.update_resources(name, ALL)
    assert (made.resources_id, made.version) == (name, 1)
    assert await store.get_resources_by_id(name) == made


@pytest.mark.parametrize("wrong", [{"x": 3}, {"x": {"resource_type": "nonexistent"}}])
async def test_update_resources_refuses_what_is_none(store: LightningStore, wrong: Any) -> None:
    before = await store.get_latest_resources()
    with pytest.raises(ValueError, match="x is not a resource"):
        await store.update_resources("wrong", wrong)
    assert await store.get_latest_resources() == before


async def test_resources_that_no_record_holds_are_refused_with_what_to_do(store: LightningStore) -> None:
    before = await store.get_latest_resources()
    large: NamedResources = {"small": PromptTemplate(template="x"), "large": PromptTemplate(template="é" * 17_000_000)}
    for refused in (store.add_resources(large), store.update_resources(unique(), large)):
        with pytest.raises(StoreError, match=r"34,\d{3},\d{3} bytes, the largest is large.*Artefact\.of\(path\)"):
            await refused
    assert await store.get_latest_resources() == before


async def test_get_resources_by_id_of_what_does_not_exist(store: LightningStore) -> None:
    assert await store.get_resources_by_id("nonexistent") is None


async def test_get_resources_by_id_waits_for_them(store: LightningStore) -> None:
    name = unique("later")
    waiting = await under_way(
        store.get_resources_by_id(name, timeout_s=60), store.get_resources_by_id(name, timeout_s=0.1)
    )
    made = await store.update_resources(name, ALL)
    assert await waiting == made


async def test_query_resources_filters_sorts_and_pages(store: LightningStore) -> None:
    family = unique("family")
    made = [await store.update_resources(f"{family}-{name}", {}) for name in "bca"]
    await store.update_resources(f"{family}-b", ALL)

    async def names(**query: Any) -> list[str]:
        return [update.resources_id[-1] for update in await store.query_resources(**query)]

    assert await names(resources_id_contains=family) == ["b", "c", "a"]
    assert await names(resources_id=made[1].resources_id) == ["c"]
    assert await names(resources_id_contains=family, sort_by="resources_id") == ["a", "b", "c"]
    assert (await names(resources_id_contains=family, sort_by="update_time", sort_order="desc"))[0] == "b"
    page = await store.query_resources(resources_id_contains=family, limit=1, offset=1)
    assert ([update.resources_id[-1] for update in page], page.total) == (["c"], 3)
    with pytest.raises(ValueError, match="sort_by"):
        await store.query_resources(sort_by="resources")
